// fused: sixteen bytes of gate, up and gradient at a time, two such pieces a thread so that enough reads are
// under way. A tensor whose rows do not begin at a multiple of 16 bytes takes naive's kernels. Floor: three
// matrices forward, five backward, as in cuda_naive.cu.
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/rows.cuh"
#include "ops/cuda_device/vector.cuh"
#include "ops/swiglu/swiglu.h"

namespace kiln {
namespace {

constexpr int kPiecesPerThread = 2;

// 1 / (1 + exp(-g)). exp overflows to infinity for very negative g, and the quotient is then 0, as it should
// be.
__device__ float sigmoid(float g) { return __fdividef(1.0f, 1.0f + __expf(-g)); }
__device__ float accurate_sigmoid(float g) { return 1.0f / (1.0f + expf(-g)); }

// The fast exponential is off by a few units in the last place of fp32: nothing in 16 bits, too much for
// fp32.
template <class T>
__device__ float sigmoid_of(float g) {
  if constexpr (sizeof(T) == 4) return accurate_sigmoid(g);
  return sigmoid(g);
}

// Calls f(row, column of the pack) for this thread's packs of a [rows, cols] matrix, numbered through.
template <class F>
__device__ void for_packs(int64_t rows, int64_t packs_per_row, F f) {
  const int64_t all = rows * packs_per_row,
                first = static_cast<int64_t>(blockIdx.x) * kPiecesPerThread * blockDim.x;
#pragma unroll
  for (int k = 0; k < kPiecesPerThread; ++k) {
    const int64_t at = first + k * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (at < all) f(at / packs_per_row, at % packs_per_row);
  }
}

template <class T>
__global__ void forward_kernel(RowView<T> gate, RowView<T> up, RowView<T> y, int64_t rows, int64_t packs) {
  constexpr int N = Pack<T>::kSize;
  for_packs(rows, packs, [&](int64_t r, int64_t c) {
    const Pack<T> g = stream_load_pack(gate[r] + c * N), u = stream_load_pack(up[r] + c * N);
    float out[N];
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = g[i] * sigmoid_of<T>(g[i]) * u[i];
    store_pack(y[r] + c * N, Pack<T>::of(out));
  });
}

template <class T>
struct SwigluGrads {
  RowView<T> dgate, dup;
  bool add_to_dgate, add_to_dup;
};

// silu'(g) = s (1 + g (1 - s)) with s = 1 / (1 + exp(-g))
template <class T>
__global__ void backward_kernel(RowView<T> dy, RowView<T> gate, RowView<T> up, SwigluGrads<T> out,
                                int64_t rows, int64_t packs) {
  constexpr int N = Pack<T>::kSize;
  for_packs(rows, packs, [&](int64_t r, int64_t c) {
    const Pack<T> d = stream_load_pack(dy[r] + c * N), g = stream_load_pack(gate[r] + c * N),
                  u = stream_load_pack(up[r] + c * N);
    float dg[N], du[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float s = sigmoid_of<T>(g[i]);
      dg[i] = d[i] * u[i] * s * (1 + g[i] * (1 - s));
      du[i] = d[i] * g[i] * s;
    }
    if (out.dgate) put_pack(out.dgate[r] + c * N, dg, out.add_to_dgate);
    if (out.dup) put_pack(out.dup[r] + c * N, du, out.add_to_dup);
  });
}

Grid packs_grid(const SwigluProblem& p) {
  return {blocks_for(p.rows * p.cols * static_cast<int64_t>(size_of(p.dtype)) / 16,
                     int64_t{kThreads} * kPiecesPerThread)};
}

}  // namespace

void swiglu_cuda_fused_forward(RankContext& ctx, const SwigluForward& f) {
  if (!all_take_packs(f.p.cols, f.gate, f.up, f.y)) return swiglu_cuda_naive_forward(ctx, f);
  with_narrow_gpu_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(forward_kernel<T>, packs_grid(f.p), kThreads, 0, cuda_stream(ctx), row_view<T>(f.gate),
           row_view<T>(f.up), row_view<T>(f.y), f.p.rows, f.p.cols / Pack<T>::kSize);
  });
}

void swiglu_cuda_fused_backward(RankContext& ctx, const SwigluBackward& b) {
  if (!all_take_packs(b.p.cols, b.dy, b.gate, b.up, b.dgate.tensor, b.dup.tensor))
    return swiglu_cuda_naive_backward(ctx, b);
  with_narrow_gpu_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const SwigluGrads<T> out{row_view<T>(b.dgate.tensor), row_view<T>(b.dup.tensor), b.dgate.accumulate,
                             b.dup.accumulate};
    launch(backward_kernel<T>, packs_grid(b.p), kThreads, 0, cuda_stream(ctx), row_view<T>(b.dy),
           row_view<T>(b.gate), row_view<T>(b.up), out, b.p.rows, b.p.cols / Pack<T>::kSize);
  });
}

}  // namespace kiln
