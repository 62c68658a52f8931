// tiled: the shape of a GPU kernel, in plain loops. x is cut into tiles of 16 rows and 64 columns; one worker
// takes the row of tiles that 16 rows make and walks along it. Backward reads x once for both gradients: each
// worker sums the weight gradient of its own 16 rows into its own partial buffer, and a second step adds the
// buffers in order. docs/weighted-sum.md explains it line by line.
// Memory bound: x read once forward; x read and dx written once backward.
#include "ops/cpu_rows.h"
#include "ops/weighted_sum/weighted_sum.h"

namespace kiln {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileCols = 64;  // the partial sums of a tile stay in registers and the first cache

int64_t tiles(int64_t extent, int64_t tile) { return (extent + tile - 1) / tile; }

}  // namespace

std::size_t weighted_sum_cpu_tiled_workspace(const WeightedSumProblem& p, Pass pass) {
  if (pass == Pass::forward) return 0;
  return static_cast<std::size_t>(tiles(p.rows, kTileRows) * p.cols) * size_of(stat_dtype(p.dtype));
}

void weighted_sum_cpu_tiled_forward(RankContext& ctx, const WeightedSumForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = rows_of<T>(f.x);
    const T* w = f.weight.data<T>();
    T* y = f.y.data<T>();
    ctx.pool().parallel_for(tiles(f.p.rows, kTileRows), 1, [&](int64_t first_tile, int64_t last_tile) {
      for (int64_t tile = first_tile; tile < last_tile; ++tile) {
        const int64_t row = tile * kTileRows;
        const int64_t rows = std::min(kTileRows, f.p.rows - row);  // the last tile may be short
        Accum<T> sums[kTileRows] = {};
        for (int64_t col = 0; col < f.p.cols; col += kTileCols) {
          const int64_t cols = std::min(kTileCols, f.p.cols - col);
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t c = 0; c < cols; ++c) sums[r] += widen(x[row + r][col + c]) * widen(w[col + c]);
          }
        }
        for (int64_t r = 0; r < rows; ++r) y[row + r] = static_cast<T>(sums[r]);
      }
    });
  });
}

void weighted_sum_cpu_tiled_backward(RankContext& ctx, const WeightedSumBackward& b) {
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Accum<T>;
    const auto x = rows_of<T>(b.x);
    const T *w = b.weight.data<T>(), *dy = b.dy.data<T>();
    const auto dx = b.dx.wanted() ? rows_of<T>(b.dx.tensor) : Rows<T>{};
    const int64_t row_tiles = tiles(b.p.rows, kTileRows);
    A* partials = row_tiles > 0 && b.p.cols > 0 ? reinterpret_cast<A*>(b.workspace.raw()) : nullptr;

    // 1. Every row of tiles by itself: its part of dx, and its own partial sums of dweight.
    ctx.pool().parallel_for(row_tiles, 1, [&](int64_t first_tile, int64_t last_tile) {
      for (int64_t tile = first_tile; tile < last_tile; ++tile) {
        const int64_t row = tile * kTileRows, rows = std::min(kTileRows, b.p.rows - row);
        for (int64_t col = 0; col < b.p.cols; col += kTileCols) {
          const int64_t cols = std::min(kTileCols, b.p.cols - col);
          A sums[kTileCols] = {};
          for (int64_t r = 0; r < rows; ++r) {
            const A d = widen(dy[row + r]);
            for (int64_t c = 0; c < cols; ++c) sums[c] += d * widen(x[row + r][col + c]);
            if (!b.dx.wanted()) continue;
            for (int64_t c = 0; c < cols; ++c)
              put(dx[row + r][col + c], d * widen(w[col + c]), b.dx.accumulate);
          }
          for (int64_t c = 0; c < cols; ++c) partials[tile * b.p.cols + col + c] = sums[c];
        }
      }
    });

    // 2. The partial sums, added in the order of the tiles.
    if (!b.dweight.wanted()) return;
    with_grad_type<T>(b.dweight, [&](auto g) {
      auto* dw = b.dweight.tensor.data<decltype(g)>();
      ctx.pool().parallel_for(b.p.cols, kTileCols, [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) {
          A sum = 0;
          for (int64_t tile = 0; tile < row_tiles; ++tile) sum += partials[tile * b.p.cols + c];
          put(dw[c], sum, b.dweight.accumulate);
        }
      });
    });
  });
}

}  // namespace kiln
