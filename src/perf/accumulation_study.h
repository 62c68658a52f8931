// What gradient accumulation loses under each precision policy: the gradient of one linear layer over k
// micro-batches, added up in the policy's own arena, against fp64.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/precision.h"

namespace kiln {

struct AccumulationRequest {
  int64_t batch = 16;  // rows of a micro-batch
  int64_t in = 48, out = 24;
  std::vector<int> micro_batches = {1, 4, 16, 64};
  uint64_t seed = 0;
};

struct AccumulationCell {
  int micro_batches;
  double error;      // of the gradient, by norm, relative to fp64
  double floor;      // the error that rounding activations and output gradients to the compute dtype makes
  double predicted;  // floor, and one rounding to the arena's spacing for each micro-batch
};

struct AccumulationRow {
  Precision precision;
  PrecisionPolicy policy;
  std::vector<AccumulationCell> cells;
};

struct AccumulationReport {
  AccumulationRequest request;
  std::vector<AccumulationRow> rows;
};

AccumulationReport accumulation_study(const AccumulationRequest& request);

}  // namespace kiln
