// naive: the readable baseline. One thread per element.
// Memory bound: forward reads gate and up and writes y, 3 * rows * cols * element size bytes; backward reads
// gate, up and dy and writes two gradients, 5 times as much.
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/rows.cuh"
#include "ops/swiglu/swiglu.h"

namespace kiln {
namespace {

template <class T>
__global__ void forward_kernel(RowView<T> gate, RowView<T> up, RowView<T> y, int64_t cols) {
  const int64_t r = blockIdx.x;
  for (int64_t c = first_column(); c < cols; c += column_step()) {
    const Accum<T> g = to_accum(gate[r][c]);
    y[r][c] = from_accum<T>(g / (1 + std::exp(-g)) * to_accum(up[r][c]));
  }
}

template <class T>
struct SwigluGrads {
  RowView<T> dgate, dup;
  bool add_to_dgate, add_to_dup;
};

// silu'(g) = s (1 + g (1 - s)) with s = 1 / (1 + exp(-g))
template <class T>
__global__ void backward_kernel(RowView<T> dy, RowView<T> gate, RowView<T> up, SwigluGrads<T> out,
                                int64_t cols) {
  using A = Accum<T>;
  const int64_t r = blockIdx.x;
  for (int64_t c = first_column(); c < cols; c += column_step()) {
    const A g = to_accum(gate[r][c]), s = 1 / (1 + std::exp(-g)), d = to_accum(dy[r][c]);
    if (out.dgate) {
      put_grad(out.dgate[r][c], d * to_accum(up[r][c]) * s * (1 + g * (1 - s)), out.add_to_dgate);
    }
    if (out.dup) put_grad(out.dup[r][c], d * g * s, out.add_to_dup);
  }
}

}  // namespace

void swiglu_cuda_naive_forward(RankContext& ctx, const SwigluForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(forward_kernel<T>, matrix_grid(f.p.rows, f.p.cols), kThreads, 0, cuda_stream(ctx),
           row_view<T>(f.gate), row_view<T>(f.up), row_view<T>(f.y), f.p.cols);
  });
}

void swiglu_cuda_naive_backward(RankContext& ctx, const SwigluBackward& b) {
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const SwigluGrads<T> out{row_view<T>(b.dgate.tensor), row_view<T>(b.dup.tensor), b.dgate.accumulate,
                             b.dup.accumulate};
    launch(backward_kernel<T>, matrix_grid(b.p.rows, b.p.cols), kThreads, 0, cuda_stream(ctx),
           row_view<T>(b.dy), row_view<T>(b.gate), row_view<T>(b.up), out, b.p.cols);
  });
}

}  // namespace kiln
