// Memory on paper: the residual stream of a model, and the exercise of a model far too large for a device,
// sharded in four dimensions.
#pragma once

#include "model/size_registry.h"
#include "studies/calc/parallel_ffn.h"

namespace kiln {

struct StreamRequest {
  double batch = 4, context = 512, d_model = 768;
  double bytes = 4;  // of a number
  std::string size;
};

// What one tensor of the residual stream takes.
Calculation calc_residual_stream(const StreamRequest& request);

// Blocks of two linears, D x F and F x D, and nothing else.
struct XxlRequest {
  double d_model = 16384, d_ff = 53248, layers = 126;
  double state_bytes = 16;                      // of a parameter: fp32 weight, gradient and two moments
  double activation_bytes = 2;                  // of a saved number: the inputs of both linears, in bf16
  double tokens = 8192;                         // of a device, for which activations are kept
  double device_bytes = 80e9;                   // (a) how many of these hold the state?
  double sharded_bytes = 95e9;                  // (b) and over how many of these must it be sharded?
  double bandwidth = 2 * 9e10, flops = 4.6e14;  // (c) of a device
  double axes_fsdp = 2, axes_tp = 1;            // of the torus, for each kind of traffic
  double fsdp = 16, tp = 4;
};

Calculation calc_xxl(const XxlRequest& request);

}  // namespace kiln
