// The page of an ablation: its rows compared, memory, and the gate's errors.
#pragma once

#include "report/tables/study_page.h"
#include "studies/ablation/ablation.h"

namespace kiln {

StudyPage ablate_page(const AblateReport& report, bool wide = false);

}  // namespace kiln
