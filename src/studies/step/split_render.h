// The tables and the JSON of --split: parts of a step, and its slowest kernels.
#pragma once

#include "base/json.h"
#include "studies/format.h"
#include "studies/step/step.h"

namespace kiln {

TextTable split_table(const StepRow& row);
TextTable kernel_table(const StepRow& row, int most);  // empty where the split knows no kernels
Json split_json(const StepRow& row);

}  // namespace kiln
