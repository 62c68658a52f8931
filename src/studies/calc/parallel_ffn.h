// What it costs to share a feed-forward block among devices: data parallel, FSDP, tensor parallel and both at
// once. The block is SwiGLU's, W1 and W2 of D x F and W3 of F x D in two-byte numbers, on B tokens over N
// devices of C FLOP/s with W bytes/s to the others; collectives are rings without latency.
#pragma once

#include <string>
#include <vector>

#include "studies/calc/derivation.h"

namespace kiln {

struct FfnRequest {
  double tokens = 4096 * 8;  // B, of all devices
  double d_model = 4096, d_ff = 16384;
  int devices = 8;       // N
  int fsdp = 0, tp = 0;  // of 2d: the split; 0: the best one of `devices`
  double flops = 0;      // C
  double bandwidth = 0;  // W
  std::string hardware;  // whose figures C and W are; empty: given one by one
};

struct Calculation {
  std::string title;
  Derivation derivation;
  std::vector<std::string> answers = {};
};

Calculation calc_dp(const FfnRequest& request);
Calculation calc_fsdp(const FfnRequest& request);
Calculation calc_tp(const FfnRequest& request);
Calculation calc_2d(const FfnRequest& request);

// The backward pass of tensor parallelism over the shards of one device, n of N, an equation a line. Matrices
// stand side by side where they are multiplied, "o" is the product by element, ^T the transpose, sum_n the
// all-reduce.
const std::vector<std::string>& tp_forward_equations();
const std::vector<std::string>& tp_backward_equations();

}  // namespace kiln
