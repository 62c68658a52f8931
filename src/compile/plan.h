// What a region is compiled to: its graph, what forward keeps, and the kernels of both passes.
#pragma once

#include "compile/fuse.h"
#include "compile/save_or_recompute.h"
#include "compile/trace.h"

namespace kiln::compile {

// A tensor that backward reads besides the gradients of the outputs.
struct KeptTensor {
  enum class From : uint8_t { tensor, output, extra } from = From::extra;
  int index = 0;  // of the tensor or the output
  int value = 0;  // of the traced graph
  std::string name;
};

struct RegionPlan {
  std::vector<char> wanted;  // a gradient, of each tensor and then of each weight
  Program forward;           // outputs, then the extras of `kept`
  Program backward;          // gradients, in the order of `grads`
  std::vector<KeptTensor> kept;
  Kept choice;
  // Of each tensor and then of each weight: the value of backward's graph; -1: none.
  std::vector<int> grads;
  int upstream = 0;  // backward's input that brings the gradient of output 0; extras come after the outputs
};

// Forward alone, where no gradient will be asked for.
Program plan_forward(const Traced& t);
RegionPlan plan_region(const Traced& t, std::vector<char> wanted, const Rates& rates = {});

}  // namespace kiln::compile
