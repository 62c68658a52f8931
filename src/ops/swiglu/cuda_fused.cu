// fused: sixteen bytes of gate, up and gradient at a time, two such pieces a thread, read before the first is
// written so that enough reads are in flight. Memory bound: three matrices forward, five backward, as in
// cuda_naive.cu.
#include "ops/cuda_device/pack_grid.cuh"
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/vector.cuh"
#include "ops/swiglu/swiglu.h"

namespace kiln {
namespace {

constexpr int kPieces = 2;  // of a thread

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

template <class T>
__global__ void swiglu_fused_forward_kernel(RowView<T> gate, RowView<T> up, RowView<T> y, int64_t rows,
                                            int64_t packs) {
  constexpr int N = Pack<T>::kSize;
  PieceAt at[kPieces];
  Pack<T> g[kPieces], u[kPieces];
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    at[k] = piece_at<kPieces>(k, rows, packs);
    if (!at[k].inside) continue;
    g[k] = stream_load_pack(gate[at[k].row] + at[k].piece * N);
    u[k] = stream_load_pack(up[at[k].row] + at[k].piece * N);
  }
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    if (!at[k].inside) continue;
    float out[N];
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = g[k][i] * sigmoid_of<T>(g[k][i]) * u[k][i];
    store_pack(y[at[k].row] + at[k].piece * N, Pack<T>::of(out));
  }
}

template <class T>
struct SwigluGrads {
  RowView<T> dgate, dup;
  bool add_to_dgate, add_to_dup;
};

// silu'(g) = s (1 + g (1 - s)) with s = 1 / (1 + exp(-g))
template <class T>
__global__ void swiglu_fused_backward_kernel(RowView<T> dy, RowView<T> gate, RowView<T> up,
                                             SwigluGrads<T> out, int64_t rows, int64_t packs) {
  constexpr int N = Pack<T>::kSize;
  PieceAt at[kPieces];
  Pack<T> d[kPieces], g[kPieces], u[kPieces];
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    at[k] = piece_at<kPieces>(k, rows, packs);
    if (!at[k].inside) continue;
    d[k] = stream_load_pack(dy[at[k].row] + at[k].piece * N);
    g[k] = stream_load_pack(gate[at[k].row] + at[k].piece * N);
    u[k] = stream_load_pack(up[at[k].row] + at[k].piece * N);
  }
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    if (!at[k].inside) continue;
    float dg[N], du[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float s = sigmoid_of<T>(g[k][i]);
      dg[i] = d[k][i] * u[k][i] * s * (1 + g[k][i] * (1 - s));
      du[i] = d[k][i] * g[k][i] * s;
    }
    const int64_t column = at[k].piece * N;
    if (out.dgate) put_pack(out.dgate[at[k].row] + column, dg, out.add_to_dgate);
    if (out.dup) put_pack(out.dup[at[k].row] + column, du, out.add_to_dup);
  }
}

}  // namespace

void swiglu_cuda_fused_forward(RankContext& ctx, const SwigluForward& f) {
  with_narrow_gpu_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int64_t packs = f.p.cols / Pack<T>::kSize;
    launch(swiglu_fused_forward_kernel<T>, piece_grid<kPieces>(f.p.rows, packs), kThreads, 0,
           cuda_stream(ctx), row_view<T>(f.gate), row_view<T>(f.up), row_view<T>(f.y), f.p.rows, packs);
  });
}

void swiglu_cuda_fused_backward(RankContext& ctx, const SwigluBackward& b) {
  with_narrow_gpu_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const SwigluGrads<T> out{row_view<T>(b.dgate.tensor), row_view<T>(b.dup.tensor), b.dgate.accumulate,
                             b.dup.accumulate};
    const int64_t packs = b.p.cols / Pack<T>::kSize;
    launch(swiglu_fused_backward_kernel<T>, piece_grid<kPieces>(b.p.rows, packs), kThreads, 0,
           cuda_stream(ctx), row_view<T>(b.dy), row_view<T>(b.gate), row_view<T>(b.up), out, b.p.rows, packs);
  });
}

}  // namespace kiln
