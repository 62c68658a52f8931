// fused: vectors of fp32 with our own exp, each row brought into cache once.
// Memory bound: 2 * rows * cols * element size bytes forward, 3 times backward.
#include "ops/cpu_fused.h"
#include "ops/softmax/softmax.h"

#define KILN_SIMD_FILE "ops/softmax/cpu_fused_simd.h"
#include "device/cpu/simd_each.h"

namespace kiln {

void softmax_cpu_fused_forward(RankContext& ctx, const SoftmaxForward& f) {
  with_narrow_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = rows_of<const T>(f.x);
    const auto y = rows_of<T>(f.y);
    const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, softmax_row<T>);
    ctx.pool().parallel_for(f.p.rows, row_grain(f.p.cols), [&](int64_t begin, int64_t end) {
      constexpr int64_t kRoom = 4096;  // on the stack; longer rows of bf16 take their exponentials twice
      float room[kRoom];
      for (int64_t r = begin; r < end; ++r) {
        float* kept = f.p.cols <= kRoom ? room : nullptr;
        if constexpr (std::is_same_v<T, float>) kept = y[r];
        kernel(x[r], y[r], f.p.cols, kept);
      }
    });
  });
}

void softmax_cpu_fused_backward(RankContext& ctx, const SoftmaxBackward& b) {
  with_narrow_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto y = rows_of<const T>(b.y), dy = rows_of<const T>(b.dy);
    const auto dx = rows_of<T>(b.dx.tensor);
    const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, softmax_grad_row<T>);
    ctx.pool().parallel_for(b.p.rows, row_grain(b.p.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) kernel(y[r], dy[r], dx[r], b.p.cols, b.dx.accumulate);
    });
  });
}

}  // namespace kiln
