// A sweep's results: its rows as one table, and what follows from all of them.
#pragma once

#include "report/tables/study_page.h"
#include "studies/sweep/sweep.h"

namespace kiln {

// Its columns are those of the swept command.
StudyPage sweep_page(const SweepReport& report, bool wide = false);

}  // namespace kiln
