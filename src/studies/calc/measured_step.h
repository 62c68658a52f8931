// The stored step that a calculation of time or memory is of, beside it.
#pragma once

#include "studies/calc/step_theory.h"
#include "studies/calc/stored.h"

namespace kiln {

// The newest row of `bench step` of this very step that passed its gate: a note and the keys `measured_ms`,
// `measured_peak_bytes` and `measured_on`; null where none is stored.
void add_measured_step(StudyPage& page, const StepTheoryRequest& request, StoredRows stored);

}  // namespace kiln
