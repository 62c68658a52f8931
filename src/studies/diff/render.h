// The page of `kiln diff`.
#pragma once

#include "report/tables/study_page.h"
#include "studies/diff/diff.h"

namespace kiln {

StudyPage diff_page(const StepDiff& diff, bool wide = false);

}  // namespace kiln
