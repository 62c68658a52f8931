// The forms in which `kiln ablate` shows a report.
#pragma once

#include "studies/ablation/ablation.h"
#include "report/tables/text_table.h"

namespace kiln::cli {

std::string ablate_page(const AblateReport& report, PageFormat format);

}  // namespace kiln::cli
