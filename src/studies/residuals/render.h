// Output of `kiln residuals` (docs/memory.md lists the keys of its JSON).
#pragma once

#include "report/tables/study_page.h"
#include "studies/residuals/residuals.h"

namespace kiln {

StudyPage residuals_op_page(const ResidualsOpReport& report);
StudyPage residuals_block_page(const ResidualsBlockReport& report);

}  // namespace kiln
