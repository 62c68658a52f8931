// fused: sixteen bytes at a time, two such pieces a thread. Memory bound: read a and b, write y: 3 * rows *
// cols * element size bytes; without a, which copies a gradient into its place, 2.
#include "ops/add/add.h"
#include "ops/cuda_device/pack_grid.cuh"
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/vector.cuh"

namespace kiln {
namespace {

constexpr int kPieces = 2;

// y may be a itself: a thread reads all of its pieces before it writes one.
template <class T>
__global__ void add_fused_kernel(RowView<T> a, RowView<T> b, RowView<T> y, int64_t rows, int64_t packs) {
  constexpr int N = Pack<T>::kSize;
  Pack<T> left[kPieces], right[kPieces];
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    const PieceAt p = piece_at<kPieces>(k, rows, packs);
    if (!p.inside) continue;
    if (a) left[k] = load_pack(a[p.row] + p.piece * N);
    right[k] = load_pack(b[p.row] + p.piece * N);
  }
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    const PieceAt p = piece_at<kPieces>(k, rows, packs);
    if (!p.inside) continue;
    Pack<T> out = right[k];
    if (a) {
      float sum[N];
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] = left[k][i] + right[k][i];
      out = Pack<T>::of(sum);
    }
    store_pack(y[p.row] + p.piece * N, out);
  }
}

}  // namespace

void add_cuda_fused_forward(RankContext& ctx, const AddForward& f) {
  const bool one_row = all_contiguous(f.a, f.b, f.y);
  const int64_t rows = one_row ? 1 : f.p.rows, cols = one_row ? f.p.rows * f.p.cols : f.p.cols;
  with_narrow_gpu_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int64_t packs = cols / Pack<T>::kSize;
    launch(add_fused_kernel<T>, piece_grid<kPieces>(rows, packs), kThreads, 0, cuda_stream(ctx),
           row_view<T>(f.a), row_view<T>(f.b), row_view<T>(f.y), rows, packs);
  });
}

}  // namespace kiln
