// Rounding error of training's sums, against fp64. Gradient accumulation under each precision policy: the
// gradient of one linear layer over k micro-batches, summed in the policy's own arena. The other sums in
// each dtype, with their cost: sum_table.h.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/precision.h"
#include "studies/precision/sum_table.h"

namespace kiln {

struct GradAccumulationRequest {
  int64_t batch = 16;  // rows of a micro-batch
  int64_t in = 48, out = 24;
  std::vector<int> micro_batches = {1, 4, 16, 64};
  uint64_t seed = 0;  // of all; and so is the device
  Device device = Device::cpu();
  SumRequest sums = {};
};

struct AccumulationCell {
  int micro_batches;
  double error;      // of the gradient, by norm, relative to fp64
  double floor;      // the error that rounding activations and output gradients to the compute dtype makes
  double predicted;  // floor, and one rounding to the arena's spacing for each micro-batch
};

struct GradAccumulationRow {
  Precision precision;
  PrecisionPolicy policy;
  std::vector<AccumulationCell> cells;
};

struct GradAccumulationReport {
  GradAccumulationRequest request;
  std::vector<GradAccumulationRow> rows;
  std::vector<SumTable> sums;
};

std::vector<GradAccumulationRow> gradient_accumulation(const GradAccumulationRequest& request);
GradAccumulationReport grad_accumulation_study(const GradAccumulationRequest& request);

}  // namespace kiln
