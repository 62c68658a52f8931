// Which dtype each tensor of a small model has under a precision policy: fc1 (no bias), ReLU, LayerNorm, fc2,
// cross-entropy, forward and backward. The dtypes are read from the tensors as they pass, not from the
// policy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/precision.h"

namespace kiln {

struct ToyModelRequest {
  int64_t batch = 32;
  int64_t in = 20;
  int64_t hidden = 10;
  int64_t classes = 5;
  uint64_t seed = 0;
};

struct ToyTensor {
  std::string what;
  std::string shape;
  DType dtype;      // of the tensor that was there
  DType predicted;  // by the policy
};

struct ToyModelRun {
  Precision precision;
  PrecisionPolicy policy;
  std::vector<ToyTensor> tensors;
  double loss = 0;
  double loss_error = 0;  // relative, against fp32's
  double grad_error = 0;  // of all parameters' gradients, relative and by norm, against fp32's
  // ReLU outputs that are zero here and not in fp32, or the other way round: a step in the gradient, however
  // small the rounding that made it
  int64_t switched = 0;
  double floor = 0;  // the relative error of one rounding to the compute dtype
  bool as_predicted() const;
};

struct ToyModelReport {
  ToyModelRequest request;
  std::vector<ToyModelRun> runs;  // fp32, fp16, autocast: the same tensors in the same order
};

ToyModelReport toy_model_study(const ToyModelRequest& request);

}  // namespace kiln
