// flash_fp32: attention in true fp32, forward and backward, without a matrix of scores in memory: the tiled
// kernels with every step of their ladder taken (forward.cuh, backward.cuh).
// Roofline: the multiply-adds, 4 D forward and 10 D (here 14 D) backward per seen pair and head, at two
// operations for each of a multiprocessor's 128 lanes a cycle (67 TFLOP/s on an H200); fp32 has no tensor
// cores.
#include "ops/attention/gpu_shared_memory.h"
#include "ops/attention/tiled/backward.cuh"
#include "ops/attention/tiled/forward.cuh"

namespace kiln {
namespace {

struct Fp32Step {
  static constexpr bool kSkip = true, kSplit = true, kAsync = true, kAtomic = false;
};

template <class F>
void with_width(int64_t D, F f) {
  switch (tiled::tile_width(D)) {
    case 32:
      return f(std::integral_constant<int, 32>{});
    case 64:
      return f(std::integral_constant<int, 64>{});
    case 128:
      return f(std::integral_constant<int, 128>{});
    default:
      return f(std::integral_constant<int, 256>{});
  }
}

std::size_t shared_bytes(RankContext& ctx) {
  return static_cast<std::size_t>(shared_kib(ctx.traits().compute_capability)) * 1024;
}

}  // namespace

void attention_cuda_flash_fp32_forward(RankContext& ctx, const AttentionForward& f) {
  with_width(f.p.D, [&](auto width) {
    using Large = tiled::ForwardTiles<width, false>;
    using Small = tiled::ForwardTiles<width, true>;
    if constexpr (Small::kShape != Large::kShape) {
      // Large blocks read keys half as often; too few of them would leave multiprocessors idle.
      const bool few = f.p.B * f.p.H * blocks_for(f.p.Tq, Large::kShape.rows) < 2 * 132;
      if (few || tiled::forward_bytes(Large::kShape, sizeof(float)) > shared_bytes(ctx))
        return tiled::run_forward<Fp32Step, float, Small>(ctx, f);
    }
    tiled::run_forward<Fp32Step, float, Large>(ctx, f);
  });
}

void attention_cuda_flash_fp32_backward(RankContext& ctx, const AttentionBackward& b) {
  with_width(b.p.D, [&](auto width) {
    using Large = tiled::BackwardTiles<width, false>;
    using Small = tiled::BackwardTiles<width, true>;
    if constexpr (Small::kShape != Large::kShape) {
      if (tiled::backward_bytes(Large::kShape, sizeof(float)) > shared_bytes(ctx))
        return tiled::run_backward<Fp32Step, float, Small>(ctx, b);
    }
    tiled::run_backward<Fp32Step, float, Large>(ctx, b);
  });
}

}  // namespace kiln
