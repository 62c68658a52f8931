// y = softmax(scale * x) over the keys a query sees, and 0 elsewhere: x [..., Tq, Tk] are scores, a row a
// query. Causal is aligned at the bottom right: query i sees keys 0 .. i + Tk - Tq. A query that sees no key
// gets zeros. What is masked is not read, so a NaN there stays where it is; its gradient is 0. Sums in fp32
// (fp64 for fp64 rows).
#pragma once

#include "ops/variant.h"

namespace kiln {

class BackwardPass;

struct MaskedSoftmaxProblem {
  int64_t rows;    // all axes but the last; a multiple of Tq
  int64_t Tq, Tk;  // queries and keys of one matrix of scores
  DType dtype;
  float scale;
  bool causal;
  bool vectorizable = true;  // all tensors of the pass, and all rows of each

  // One past the last key that row r sees.
  KILN_HD int64_t visible(int64_t r) const {
    const int64_t n = causal ? r % Tq + 1 + Tk - Tq : Tk;
    return n < 0 ? 0 : n;
  }
};

struct MaskedSoftmaxForward {
  MaskedSoftmaxProblem p;
  const Tensor& x;  // [rows, Tk]
  const Tensor& y;  // [rows, Tk]
};

// dx = scale * y * (dy - sum(dy * y)) over the keys the row sees, 0 elsewhere.
struct MaskedSoftmaxBackward {
  MaskedSoftmaxProblem p;
  const Tensor& dy;
  const Tensor& y;
  GradSlot dx;
};

struct MaskedSoftmaxOp {
  static constexpr const char* kName = "masked_softmax";
  static constexpr OpKind kKind = OpKind::attention_softmax;
  static constexpr const char* kSummary = "y = softmax(scale * x + mask) over the last axis";
  using Problem = MaskedSoftmaxProblem;
  using Forward = MaskedSoftmaxForward;
  using Backward = MaskedSoftmaxBackward;
  static std::span<const Variant<MaskedSoftmaxOp>> rows();
  static void run_backward(BackwardPass& pass);
  static Problem example() { return {256, 128, 128, DType::f32, 1, true}; }
  static Cost cost(const MaskedSoftmaxProblem& p, Pass pass);
};

struct MaskedSoftmaxOptions {
  float scale = 1;
  bool causal = true;
  std::string_view variant = {};
};

// x [..., Tq, Tk]. Saves y.
Tensor masked_softmax(RankContext& ctx, const Tensor& x, const MaskedSoftmaxOptions& options);

void masked_softmax_cpu_naive_forward(RankContext& ctx, const MaskedSoftmaxForward& f);
void masked_softmax_cpu_naive_backward(RankContext& ctx, const MaskedSoftmaxBackward& b);
void masked_softmax_cpu_fused_forward(RankContext& ctx, const MaskedSoftmaxForward& f);
void masked_softmax_cpu_fused_backward(RankContext& ctx, const MaskedSoftmaxBackward& b);
void masked_softmax_cuda_naive_forward(RankContext& ctx, const MaskedSoftmaxForward& f);
void masked_softmax_cuda_naive_backward(RankContext& ctx, const MaskedSoftmaxBackward& b);
void masked_softmax_cuda_fused_forward(RankContext& ctx, const MaskedSoftmaxForward& f);
void masked_softmax_cuda_fused_backward(RankContext& ctx, const MaskedSoftmaxBackward& b);

}  // namespace kiln
