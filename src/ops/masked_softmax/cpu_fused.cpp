// fused: vectors of fp32 with our own exp, each row brought into cache once, and of it only what is seen.
// Memory bound: the bytes of the cost function; for a causal square of scores, 1.5 of 2 passes over it
// forward and 2 of 3 backward.
#include "ops/cpu_fused.h"
#include "ops/masked_softmax/masked_softmax.h"

#define KILN_SIMD_FILE "ops/masked_softmax/cpu_fused_simd.h"
#include "device/cpu/simd_each.h"

namespace kiln {

void masked_softmax_cpu_fused_forward(RankContext& ctx, const MaskedSoftmaxForward& f) {
  with_narrow_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = rows_of<const T>(f.x);
    const auto y = rows_of<T>(f.y);
    const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, masked_softmax_row<T>);
    ctx.pool().parallel_for(f.p.rows, row_grain(f.p.Tk), [&](int64_t begin, int64_t end) {
      constexpr int64_t kRoom = 4096;  // on the stack; longer rows of bf16 take their exponentials twice
      float room[kRoom];
      for (int64_t r = begin; r < end; ++r) {
        const int64_t n = f.p.visible(r);
        float* kept = n <= kRoom ? room : nullptr;
        if constexpr (std::is_same_v<T, float>) kept = y[r];
        kernel(x[r], y[r], n, f.p.Tk, f.p.scale, kept);
      }
    });
  });
}

void masked_softmax_cpu_fused_backward(RankContext& ctx, const MaskedSoftmaxBackward& b) {
  with_narrow_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto y = rows_of<const T>(b.y), dy = rows_of<const T>(b.dy);
    const auto dx = rows_of<T>(b.dx.tensor);
    const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, masked_softmax_grad_row<T>);
    ctx.pool().parallel_for(b.p.rows, row_grain(b.p.Tk), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        kernel(y[r], dy[r], dx[r], b.p.visible(r), b.p.Tk, b.p.scale, b.dx.accumulate);
    });
  });
}

}  // namespace kiln
