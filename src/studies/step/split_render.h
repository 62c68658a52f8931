// The tables and the JSON of --split: parts of a step, and its slowest kernels.
#pragma once

#include <nlohmann/json.hpp>

#include "studies/format.h"
#include "studies/step/step.h"

namespace kiln::cli {

TextTable split_table(const StepRow& row);
TextTable kernel_table(const StepRow& row, int most);  // empty where the split knows no kernels
nlohmann::ordered_json split_json(const StepRow& row);

}  // namespace kiln::cli
