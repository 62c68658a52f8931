// y = a + b: the residual connection. Its gradient is passed on to both inputs without touching memory.
#pragma once

#include "ops/variant.h"

namespace kiln {

class BackwardPass;

struct AddProblem {
  int64_t rows, cols;
  DType dtype;
  bool vectorizable = true;  // all tensors of the pass, and all rows of each
};

struct AddForward {
  AddProblem p;
  const Tensor& a;  // undefined: y = b
  const Tensor& b;
  const Tensor& y;  // may be a itself
};

struct AddOp {
  static constexpr const char* kName = "add";
  static constexpr OpKind kKind = OpKind::elementwise;
  static constexpr const char* kSummary = "y = a + b (the residual connection)";
  using Problem = AddProblem;
  using Forward = AddForward;
  using Backward = NoBackward;
  static std::span<const Variant<AddOp>> rows();
  static void run_backward(BackwardPass& pass);
  static Problem example() { return {128, 256, DType::f32}; }
};

// a and b of one shape [..., C]. Saves nothing.
Tensor add(RankContext& ctx, const Tensor& a, const Tensor& b, std::string_view variant = {});

void add_cpu_naive_forward(RankContext& ctx, const AddForward& f);
void add_cpu_fused_forward(RankContext& ctx, const AddForward& f);
void add_cuda_fused_forward(RankContext& ctx, const AddForward& f);
void add_cuda_naive_forward(RankContext& ctx, const AddForward& f);

}  // namespace kiln
