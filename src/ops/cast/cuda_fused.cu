// fused: sixteen bytes at a time on the wider side, four such pieces a thread. Memory bound: one read and one
// write; where it adds, y is read too.
#include <cstring>

#include "ops/cast/cast.h"
#include "ops/cuda_device/pack_grid.cuh"
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/vector.cuh"

namespace kiln {
namespace {

constexpr int kPieces = 4;

// Rounds each once, 16-bit ones in pairs.
template <class T, int kWide>
__device__ Wide<T, kWide> narrowed(const float (&v)[kWide]) {
  Wide<T, kWide> w;
  if constexpr (sizeof(T) == 2) {
    uint32_t words[kWide / 2];
#pragma unroll
    for (int i = 0; i < kWide / 2; ++i) words[i] = two_of(v[2 * i], v[2 * i + 1], T{});
    memcpy(&w, words, sizeof w);
  } else {
#pragma unroll
    for (int i = 0; i < kWide; ++i) w.v[i] = v[i];
  }
  return w;
}

template <class S, class T, int kWide>
__global__ void cast_fused_kernel(RowView<S> x, RowView<T> y, int64_t rows, int64_t pieces, bool accumulate) {
  Wide<S, kWide> in[kPieces];
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    const PieceAt p = piece_at<kPieces>(k, rows, pieces);
    if (p.inside) in[k] = load_wide<kWide>(x[p.row] + p.piece * kWide);
  }
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    const PieceAt p = piece_at<kPieces>(k, rows, pieces);
    if (!p.inside) continue;
    T* at = y[p.row] + p.piece * kWide;
    float v[kWide];
#pragma unroll
    for (int i = 0; i < kWide; ++i) v[i] = static_cast<float>(in[k].v[i]);
    if (accumulate) {
      const Wide<T, kWide> before = load_wide<kWide>(at);
#pragma unroll
      for (int i = 0; i < kWide; ++i) v[i] += static_cast<float>(before.v[i]);
    }
    store_wide(at, narrowed<T>(v));
  }
}

}  // namespace

void cast_cuda_fused(RankContext& ctx, const CastCopy& c) {
  const int64_t wide = cast_piece(c.p);
  const bool one_row = all_contiguous(c.x, c.y.tensor);
  const int64_t rows = one_row ? 1 : c.p.rows, pieces = (one_row ? c.p.rows * c.p.cols : c.p.cols) / wide;
  with_narrow_gpu_float(c.p.from, [&](auto from) {
    with_narrow_gpu_float(c.p.to, [&](auto to) {
      using S = decltype(from);
      using T = decltype(to);
      constexpr int kWide = 16 / static_cast<int>(std::max(sizeof(S), sizeof(T)));
      launch(cast_fused_kernel<S, T, kWide>, piece_grid<kPieces>(rows, pieces), kThreads, 0, cuda_stream(ctx),
             row_view<S>(c.x), row_view<T>(c.y.tensor), rows, pieces, c.y.accumulate);
    });
  });
}

}  // namespace kiln
