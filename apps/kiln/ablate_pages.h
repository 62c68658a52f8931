// The forms in which `kiln ablate` shows a report.
#pragma once

#include "kiln/ablate.h"
#include "report/text_table.h"

namespace kiln::cli {

std::string ablate_page(const AblateReport& report, PageFormat format);

}  // namespace kiln::cli
