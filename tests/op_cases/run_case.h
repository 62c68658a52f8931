// Runs a case on a device and dtype: draws inputs, calls the op, goes backward, brings everything home as
// double.
#pragma once

#include <vector>

#include "op_cases/op_case.h"

namespace kiln {

struct CaseData {
  std::vector<std::vector<double>> inputs;  // values exactly representable in the dtype they were drawn for
  std::vector<double> dy;                   // the gradient of the output
};

struct CaseResult {
  std::vector<double> y;
  std::vector<std::vector<double>> grads;  // per input; empty for ids
  MemoryStats memory;
};

// Draws inputs for `dtype`; the same for the same case and seed. `outputs` is the size of the op's output.
CaseData draw_case(const OpCase& c, DType dtype, uint64_t seed);

struct CaseOptions {
  bool backward = true;
  int times = 1;  // forward and backward this often without clearing gradients: later passes must add
};

// On meta there are no numbers: y and grads stay empty.
CaseResult run_case(RankContext& ctx, const OpCase& c, const CaseData& data, DType dtype,
                    const CaseOptions& options = {});

// ||a - b|| / ||b||, or ||a|| where b is zero. NaN in one place only gives infinity.
double relative_error(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace kiln
