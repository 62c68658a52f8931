// What flash attention's kernels share: tiles of 64 rows in shared memory, products of a warp's 16 rows with
// such a tile, and the careful form of a product whose masked values may not be numbers.
//
// A tile's rows are kD channels and 16 bytes of padding apart, which spreads the eight rows that one
// ldmatrix reads over all banks (for every kD used here: 64, 80, 128).
#pragma once

#include "ops/attention/attention.h"
#include "ops/cuda_device/mma.cuh"
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/rows.cuh"
#include "ops/cuda_device/vector.cuh"

namespace kiln::flash {

constexpr int kTile = 64;           // keys of a tile, or queries of one that is walked over
constexpr int kNTiles = kTile / 8;  // 8-wide sums across it
constexpr float kLog2E = 1.4426950408889634f;

// One head of a [B, T, heads * D] tensor. `packs`: all its rows are whole, aligned packs of 16 bytes.
template <class T>
struct HeadRows {
  T* base = nullptr;
  int64_t batch_stride = 0, row_stride = 0;
  bool packs = false;
  bool accumulate = false;  // of a gradient

  __device__ T* at(int64_t b, int64_t head, int64_t D, int64_t row) const {
    return base + b * batch_stride + row * row_stride + head * D;
  }
};

template <class T>
HeadRows<T> head_rows(const Tensor& t, int64_t D, bool accumulate = false) {
  if (!t.defined()) return {};
  const auto aligned = [](int64_t elements) { return elements * static_cast<int64_t>(sizeof(T)) % 16 == 0; };
  const bool packs = reinterpret_cast<std::uintptr_t>(t.raw()) % 16 == 0 && aligned(t.stride(0)) &&
                     aligned(t.stride(1)) && aligned(D) && t.stride(1) < (1 << 20);
  return {t.data<T>(), t.stride(0), t.stride(1), packs, accumulate};
}

template <class T, int kD, int kRows = kTile>
struct Tile {
  static constexpr int kStride = kD + 8;
  T row[kRows][kStride];
};

// Rows first, first + 1, ... of a head, by the block's kThreads threads; zeros past `rows` and past channel
// D. Complete after close_copies, wait_for_copies and a barrier.
template <int kThreads, class T, int kD, int kRows>
__device__ void load_tile(Tile<T, kD, kRows>& tile, const HeadRows<T>& from, int64_t b, int64_t head, int D,
                          int64_t first, int64_t rows) {
  constexpr int kPacks = kD / 8, kAll = kRows * kPacks;
  const int left = static_cast<int>(rows - first < kRows ? rows - first : kRows);
  const int stride = static_cast<int>(from.row_stride);
  const T* base = from.at(b, head, D, left > 0 ? first : 0);
  if (from.packs) {
#pragma unroll 4  // more addresses at hand would cost registers
    for (int step = 0; step < (kAll + kThreads - 1) / kThreads; ++step) {
      const int i = step * kThreads + static_cast<int>(threadIdx.x), r = i / kPacks, c = i % kPacks * 8;
      if (kAll % kThreads != 0 && i >= kAll) break;
      const bool there = r < left && c < D;
      copy_async(&tile.row[r][c], base + (there ? r * stride + c : 0), there);
    }
    return;
  }
  for (int i = threadIdx.x; i < kAll; i += kThreads) {
    const int r = i / kPacks, c = i % kPacks * 8;
    for (int k = 0; k < 8; ++k) {
      tile.row[r][c + k] =
          r < left && c + k < D ? base[static_cast<int64_t>(r) * from.row_stride + c + k] : T{};
    }
  }
}

// The 16 x 16 tile of A whose first row and column are given.
template <class T, int kD, int kRows>
__device__ TileA load_a(const Tile<T, kD, kRows>& tile, int row, int col) {
  const int lane = threadIdx.x % 32;
  TileA a;
  load_tiles(a.word, &tile.row[row + lane % 16][col + lane / 16 * 8]);
  return a;
}

// A warp's rows come in kM strips of 16. Each word of the other operand is read once for all of them: with
// one strip, reading shared memory takes longer than the products.
template <int kM>
using StripSums = TileSums[kM][kNTiles];

// sums[.][n] += A X^T for the tile's 64 rows, 8 at a time: A is [16 kM, kD], here rows of `left`.
template <int kM, class T, int kD, int kRows>
__device__ void multiply_rows(StripSums<kM>& sums, const Tile<T, kD, kRows>& left, int first_row,
                              const Tile<T, kD>& x) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < kD; k += 16) {
    TileA a[kM];
#pragma unroll
    for (int m = 0; m < kM; ++m) a[m] = load_a(left, first_row + 16 * m, k);
#pragma unroll
    for (int n = 0; n < kNTiles; n += 2) {
      uint32_t w[4];
      load_tiles(w, &x.row[n * 8 + lane / 16 * 8 + lane % 8][k + lane / 8 % 2 * 8]);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply_add<T>(sums[m][n], a[m], {{w[0], w[1]}});
        multiply_add<T>(sums[m][n + 1], a[m], {{w[2], w[3]}});
      }
    }
  }
}

// Sums as the A of a next product, rounded to 16 bits: words of tiles 2 k and 2 k + 1.
template <class T>
__device__ TileA as_a(const TileSums& left, const TileSums& right) {
  return {{two_of(left.at[0], left.at[1], T{}), two_of(left.at[2], left.at[3], T{}),
           two_of(right.at[0], right.at[1], T{}), two_of(right.at[2], right.at[3], T{})}};
}

// out[.][n] += W X for the tile's kD channels, 8 at a time: W is [16 kM, 64], the warp's own sums.
template <class T, int kM, int kD>
__device__ void multiply_columns(TileSums (&out)[kM][kD / 8], const StripSums<kM>& weights,
                                 const Tile<T, kD>& x) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < kNTiles; k += 2) {
    TileA a[kM];
#pragma unroll
    for (int m = 0; m < kM; ++m) a[m] = as_a<T>(weights[m][k], weights[m][k + 1]);
#pragma unroll
    for (int n = 0; n < kD / 8; n += 2) {
      uint32_t w[4];
      load_tiles_transposed(w, &x.row[k * 8 + lane % 16][n * 8 + lane / 16 * 8]);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply_add<T>(out[m][n], a[m], {{w[0], w[1]}});
        multiply_add<T>(out[m][n + 1], a[m], {{w[2], w[3]}});
      }
    }
  }
}

// Which pairs of a warp's 16 rows and a tile's 64 columns are seen. Rows are queries and columns keys, or,
// with kKeysDown, the other way round.
template <bool kKeysDown>
struct Border {
  int diagonal;  // a key may be this much further on than the query, counted from the first of each
  int columns;   // those that exist

  // The first query and key of the two.
  __device__ Border(const AttentionProblem& p, int64_t query, int64_t key) {
    const int64_t far = query + p.Tk - p.Tq - key, most = 2 * kTile;
    diagonal = static_cast<int>(!p.causal || far > most ? most : far < -most ? -most : far);
    const int64_t left = kKeysDown ? p.Tq - query : p.Tk - key;
    columns = static_cast<int>(left < kTile ? left : kTile);
  }
  __device__ bool operator()(int row, int column) const {
    return column < columns && (kKeysDown ? row - column : column - row) <= diagonal;
  }
};

// A warp's [16, 64] weights, for the careful product.
template <class T>
struct WeightScratch {
  T row[16][kTile + 2];
};

// The same, leaving out every pair that `seen(row, column)` rejects: a masked value must not reach the sum
// even as 0 * NaN. Slow, and taken only where a masked tile holds something that is not a number.
template <class T, int kD, class Seen>
__device__ void multiply_columns_seen(TileSums (&out)[kD / 8], WeightScratch<T>& scratch,
                                      const Tile<T, kD>& x, Seen seen) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
#pragma unroll 1
  for (int k = 0; k < kTile; ++k) {
    const bool low = seen(g, k), high = seen(g + 8, k);
    const float a = static_cast<float>(scratch.row[g][k]), b = static_cast<float>(scratch.row[g + 8][k]);
#pragma unroll
    for (int n = 0; n < kD / 8; ++n) {
      const float x0 = static_cast<float>(x.row[k][n * 8 + 2 * q]);
      const float x1 = static_cast<float>(x.row[k][n * 8 + 2 * q + 1]);
      if (low) out[n].at[0] += a * x0, out[n].at[1] += a * x1;
      if (high) out[n].at[2] += b * x0, out[n].at[3] += b * x1;
    }
  }
}

template <class T>
__device__ void write_scratch(WeightScratch<T>& scratch, const TileSums (&weights)[kNTiles]) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  __syncwarp();
#pragma unroll
  for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      scratch.row[g + e / 2 * 8][n * 8 + 2 * q + e % 2] = static_cast<T>(weights[n].at[e]);
    }
  }
  __syncwarp();
}

// Whether all values of the tile are numbers; the block's answer, with a barrier.
template <class T, int kD>
__device__ bool all_finite(const Tile<T, kD>& tile) {
  bool finite = true;
  for (int i = threadIdx.x; i < kTile * kD; i += static_cast<int>(blockDim.x)) {
    const float x = static_cast<float>(tile.row[i / kD][i % kD]);
    finite &= x - x == 0;
  }
  return __syncthreads_and(finite) != 0;
}

// A strip of sums, each of a thread's two rows times its factor, to 16 rows of a head: through shared memory
// (rows `in_tile` .. of `tile`, which nobody else may be reading) so that whole packs are written.
template <class T, int kD, int kRows>
__device__ void store_strip(const HeadRows<T>& to, int64_t b, int64_t head, int D, int64_t first,
                            int64_t rows, const TileSums (&sums)[kD / 8], float low_factor, float high_factor,
                            Tile<T, kD, kRows>& tile, int in_tile) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  if (to.packs && !to.accumulate) {
#pragma unroll
    for (int n = 0; n < kD / 8; ++n) {
      auto* low = reinterpret_cast<uint32_t*>(&tile.row[in_tile + g][n * 8 + 2 * q]);
      auto* high = reinterpret_cast<uint32_t*>(&tile.row[in_tile + g + 8][n * 8 + 2 * q]);
      *low = two_of(sums[n].at[0] * low_factor, sums[n].at[1] * low_factor, T{});
      *high = two_of(sums[n].at[2] * high_factor, sums[n].at[3] * high_factor, T{});
    }
    __syncwarp();
    constexpr int kPacks = kD / 8;
    for (int i = lane; i < 16 * kPacks; i += 32) {
      const int r = i / kPacks, c = i % kPacks * 8;
      if (first + r < rows && c < D)
        store_pack(to.at(b, head, D, first + r) + c, load_pack(&tile.row[in_tile + r][c]));
    }
    return;
  }
#pragma unroll
  for (int n = 0; n < kD / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int64_t row = first + g + e / 2 * 8;
      const int c = n * 8 + 2 * q + e % 2;
      if (row < rows && c < D) {
        put_grad(to.at(b, head, D, row)[c], sums[n].at[e] * (e < 2 ? low_factor : high_factor),
                 to.accumulate);
      }
    }
  }
}

// Calls f with the width of the tiles that hold heads of width D.
template <class F>
void with_tile_width(int64_t D, F f) {
  if (D <= 64) return f(std::integral_constant<int, 64>{});
  if (D <= 80) return f(std::integral_constant<int, 80>{});
  f(std::integral_constant<int, 128>{});
}

template <class F>
void with_tensor_core_type(DType t, F f) {
  if (t == DType::bf16) return f(bf16{});
  if (t == DType::f16) return f(fp16{});
  throw Error(cat("[attention] flash on cuda was given ", name_of(t)));
}

}  // namespace kiln::flash
