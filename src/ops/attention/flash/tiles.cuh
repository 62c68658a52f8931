// What flash attention's kernels share: heads in global memory, tiles in shared memory, the mask, the
// non-finite slow path of a matmul, and stores. An MmaEngine (ampere.cuh) brings a tile's layout and the two
// matmuls a warp makes with one.
#pragma once

#include <concepts>

#include "ops/attention/cuda_sequence.cuh"
#include "ops/attention/flash/flash_table.h"
#include "ops/cuda_device/mma.cuh"
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/rows.cuh"
#include "ops/cuda_device/vector.cuh"

namespace kiln::flash {

constexpr int kNTiles = kTile / 8;  // 8-wide accumulators across it
constexpr float kLog2E = 1.4426950408889634f;

// A tile in shared memory: kRowCount rows of kWidth channels, and at(row, channel).
template <class Tile>
concept SharedTile = requires(const Tile& tile) {
  { Tile::kRowCount } -> std::convertible_to<int>;
  { Tile::kWidth } -> std::convertible_to<int>;
  tile.at(0, 0);
};

// Says which pairs of a tile's rows and columns are seen.
template <class Seen>
concept SeenPredicate = requires(const Seen& seen) {
  { seen(0, 0) } -> std::convertible_to<bool>;
};

// The tensor-core instructions that kernels are made with: a tile's layout, and the matmuls of a warp.
template <class Engine>
concept MmaEngine = requires {
  typename Engine::template Tile<bf16, 64>;
  requires SharedTile<typename Engine::template Tile<bf16, 64>>;
  { Engine::template kStrips<64, 64> } -> std::convertible_to<int>;
};

// One head of a [B, T, heads * D] tensor. `vectorizable`: all its rows are whole, aligned vectors of 16
// bytes.
template <class T>
struct HeadRows {
  T* base = nullptr;
  int64_t batch_stride = 0, row_stride = 0;
  bool vectorizable = false;
  bool accumulate = false;  // of a gradient

  __device__ T* at(int64_t b, int64_t head, int64_t D, int64_t row) const {
    return base + b * batch_stride + row * row_stride + head * D;
  }
};

template <class T>
HeadRows<T> head_rows(const Tensor& t, int64_t D, bool accumulate = false) {
  if (!t.defined()) return {};
  const auto aligned = [](int64_t elements) { return elements * static_cast<int64_t>(sizeof(T)) % 16 == 0; };
  const bool vectorizable = reinterpret_cast<std::uintptr_t>(t.raw()) % 16 == 0 && aligned(t.stride(0)) &&
                            aligned(t.stride(1)) && aligned(D) && t.stride(1) < (1 << 20);
  return {.base = t.data<T>(),
          .batch_stride = t.dim(0) == 1 ? 0 : t.stride(0),
          .row_stride = t.stride(1),
          .vectorizable = vectorizable,
          .accumulate = accumulate};
}

// Rows first, first + 1, ... of a head, by the block's kThreads threads; zeros past `rows` and past channel
// D. Complete after cp_async_commit, cp_async_wait and a barrier.
template <int kThreads, SharedTile Tile, class T>
__device__ void load_tile(Tile& tile, const HeadRows<T>& from, int b, int head, int D, int first, int rows) {
  constexpr int kRows = Tile::kRowCount, kAll = kRows * Tile::kWidth / 8;
  const int left = rows - first < kRows ? rows - first : kRows;
  const int stride = static_cast<int>(from.row_stride);
  const T* base = from.at(b, head, D, left > 0 ? first : 0);
  if (from.vectorizable) {
#pragma unroll 4  // more addresses at hand would cost registers
    for (int step = 0; step < (kAll + kThreads - 1) / kThreads; ++step) {
      const int i = step * kThreads + static_cast<int>(threadIdx.x);
      if (kAll % kThreads != 0 && i >= kAll) break;
      const int r = Tile::row_of(i), c = Tile::channel_of(i);
      const bool valid = r < left && c < D;
      cp_async(tile.at(r, c), base + (valid ? r * stride + c : 0), valid);
    }
    return;
  }
  for (int i = threadIdx.x; i < kAll; i += kThreads) {
    const int r = Tile::row_of(i), c = Tile::channel_of(i);
    for (int k = 0; k < 8; ++k) {
      *tile.at(r, c + k) =
          r < left && c + k < D ? base[static_cast<int64_t>(r) * from.row_stride + c + k] : T{};
    }
  }
}

// Accumulators as the A of a next matmul, rounded to 16 bits: words of tiles 2 k and 2 k + 1.
template <class T>
__device__ FragA as_a(const FragAcc& left, const FragAcc& right) {
  return {{two_of(left.at[0], left.at[1], T{}), two_of(left.at[2], left.at[3], T{}),
           two_of(right.at[0], right.at[1], T{}), two_of(right.at[2], right.at[3], T{})}};
}

// Which pairs of a warp's 16 rows and a tile's 64 columns are seen. Rows are queries and columns keys, or,
// with kKeysDown, the other way round.
template <bool kKeysDown>
struct TileMask {
  int diagonal;  // a key may be this much further on than the query, counted from the first of each
  int columns;   // those that exist

  // The first query and key of the two.
  __device__ TileMask(const Sequence& at, int query, int key) {
    const int far = query - key + at.Tk - at.Tq, most = 2 * kTile;
    diagonal = !at.causal || far > most ? most : far < -most ? -most : far;
    const int left = kKeysDown ? at.Tq - query : at.Tk - key;
    columns = left < kTile ? left : kTile;
  }
  __device__ bool operator()(int row, int column) const {
    return column < columns && (kKeysDown ? row - column : column - row) <= diagonal;
  }
};

// A warp's [16, 64] probabilities (or gradients of scores), for the slow path.
template <class T>
struct ProbScratch {
  T row[16][kTile + 2];
};

// The non-finite slow path: out += P X, leaving out every pair that `seen(row, column)` rejects, since a
// masked value must not reach the sum even as 0 * NaN. Taken only where a masked tile holds something that is
// not finite.
template <class T, SharedTile Tile, SeenPredicate Seen>
__device__ void gemm_nn_seen(FragAcc (&out)[Tile::kWidth / 8], ProbScratch<T>& scratch, const Tile& x,
                             Seen seen) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
#pragma unroll 1
  for (int k = 0; k < kTile; ++k) {
    const bool low = seen(g, k), high = seen(g + 8, k);
    const float a = static_cast<float>(scratch.row[g][k]), b = static_cast<float>(scratch.row[g + 8][k]);
#pragma unroll
    for (int n = 0; n < Tile::kWidth / 8; ++n) {
      const auto* two = x.at(k, n * 8 + 2 * q);
      const float x0 = static_cast<float>(two[0]), x1 = static_cast<float>(two[1]);
      if (low) out[n].at[0] += a * x0, out[n].at[1] += a * x1;
      if (high) out[n].at[2] += b * x0, out[n].at[3] += b * x1;
    }
  }
}

template <class T>
__device__ void write_scratch(ProbScratch<T>& scratch, const FragAcc (&probs)[kNTiles]) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  __syncwarp();
#pragma unroll
  for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      scratch.row[g + e / 2 * 8][n * 8 + 2 * q + e % 2] = static_cast<T>(probs[n].at[e]);
    }
  }
  __syncwarp();
}

// Whether all values of the tile are finite; the block's answer, with a barrier.
template <SharedTile Tile>
__device__ bool all_finite(const Tile& tile) {
  constexpr int kD = Tile::kWidth;
  bool finite = true;
  for (int i = threadIdx.x; i < Tile::kRowCount * kD; i += static_cast<int>(blockDim.x)) {
    const float x = static_cast<float>(*tile.at(i / kD, i % kD));
    finite &= x - x == 0;
  }
  return __syncthreads_and(finite) != 0;
}

// A strip of sums, each of a thread's two rows times its factor, to channels `channel` .. of 16 rows of a
// head: through shared memory (those channels of rows `in_tile` .. of `tile`, which nobody else may be
// reading) so that whole vectors of 16 bytes are written.
template <int kN, class T, SharedTile Tile>
__device__ void store_strip(const HeadRows<T>& to, int b, int head, int D, int first, int rows,
                            const FragAcc (&sums)[kN], float low_factor, float high_factor, Tile& tile,
                            int in_tile, int channel = 0) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  if (to.vectorizable && !to.accumulate) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      auto* low = reinterpret_cast<uint32_t*>(tile.at(in_tile + g, channel + n * 8 + 2 * q));
      auto* high = reinterpret_cast<uint32_t*>(tile.at(in_tile + g + 8, channel + n * 8 + 2 * q));
      *low = two_of(sums[n].at[0] * low_factor, sums[n].at[1] * low_factor, T{});
      *high = two_of(sums[n].at[2] * high_factor, sums[n].at[3] * high_factor, T{});
    }
    __syncwarp();
    T* base = to.at(b, head, D, first);
    const int stride = static_cast<int>(to.row_stride);
#pragma unroll 4
    for (int i = lane; i < 16 * kN; i += 32) {
      const int r = i / kN, c = channel + i % kN * 8;
      if (first + r < rows && c < D) store_pack(base + (r * stride + c), load_pack(tile.at(in_tile + r, c)));
    }
    return;
  }
#pragma unroll
  for (int n = 0; n < kN; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = first + g + e / 2 * 8;
      const int c = channel + n * 8 + 2 * q + e % 2;
      if (row < rows && c < D) {
        put_grad(to.at(b, head, D, row)[c], sums[n].at[e] * (e < 2 ? low_factor : high_factor),
                 to.accumulate);
      }
    }
  }
}

// Widths of tiles, ascending. A source file makes the kernels of a few, since each takes seconds to compile.
template <int... kWidths>
struct Widths {};

// Calls f with the first of them that holds heads of width D, or the last.
template <int kFirst, int... kRest, class F>
void with_tile_width(Widths<kFirst, kRest...> /*of*/, int64_t D, F f) {
  if constexpr (sizeof...(kRest) > 0) {
    if (D > kFirst) return with_tile_width(Widths<kRest...>{}, D, f);
  }
  f(std::integral_constant<int, kFirst>{});
}

template <class F>
void with_tensor_core_type(DType t, F f) {
  if (t == DType::bf16) return f(bf16{});
  if (t == DType::f16) return f(fp16{});
  throw Error(cat("[attention] flash on cuda was given ", name_of(t)));
}

}  // namespace kiln::flash
