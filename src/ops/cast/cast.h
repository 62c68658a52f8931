// y = x in another dtype, rounded to nearest even: where an activation passes between fp32 and 16 bits. Its
// gradient is cast back. Weights that are cast at use take the same kernels outside of the tape
// (autograd/cast_values.h).
#pragma once

#include "ops/variant.h"

namespace kiln {

class BackwardPass;

struct CastProblem {
  int64_t rows, cols;
  DType from, to;
  bool whole_pieces = true;  // both tensors, and all rows of each, can be read and written in pieces
};

// One copy serves both directions: backward is the same with the dtypes exchanged.
struct CastCopy {
  CastProblem p;
  const Tensor& x;  // [rows, cols], `from`
  GradSlot y;       // [rows, cols], `to`
};

struct CastOp {
  static constexpr const char* kName = "cast";
  static constexpr OpKind kKind = OpKind::cast;
  static constexpr const char* kSummary = "y = x in another dtype";
  using Problem = CastProblem;
  using Forward = CastCopy;
  using Backward = CastCopy;
  static std::span<const Variant<CastOp>> rows();
  static void run_backward(BackwardPass& pass);
  static Problem example() { return {128, 256, DType::f32, DType::bf16}; }
};

// Elements that a thread of the fused CUDA kernel moves in one access: 16 bytes on the wider side.
inline int64_t cast_piece(const CastProblem& p) {
  return 16 / static_cast<int64_t>(size_of(p.from) > size_of(p.to) ? size_of(p.from) : size_of(p.to));
}

// x itself where it has the dtype already. Saves nothing.
Tensor cast(RankContext& ctx, const Tensor& x, DType to, std::string_view variant = {});

// x in the dtype in which matmuls with `weight` compute: x itself unless the weight is cast at use.
inline Tensor cast_for(RankContext& ctx, const Tensor& x, const Param& weight) {
  return weight.cast_to ? cast(ctx, x, *weight.cast_to) : x;
}

void cast_cpu_naive(RankContext& ctx, const CastCopy& c);
void cast_cpu_fused(RankContext& ctx, const CastCopy& c);
void cast_cuda_fused(RankContext& ctx, const CastCopy& c);
void cast_cuda_naive(RankContext& ctx, const CastCopy& c);

}  // namespace kiln
