// What the attention kernels made of plain multiply-adds share: tiles in shared memory, which lane has what,
// and which pairs are seen. flash_fp32 is these kernels in fp32, the tiled ladder steps are them in bf16, and
// flash_tf32 has its matmuls made by the tensor cores.
//
// A warp's lanes stand in a rectangle (TileShape::lanes across). Lane (x, y) has rows y, y + down, ... of the
// warp and columns x, x + lanes, ...: neighbours read neighbouring rows of a tile, whose padding puts them in
// different banks. Sixteen bytes a lane are read by half a warp at a time, in one go where lanes that differ
// in bit 0, or those that differ in bit 1, ask for the same: so bit 0 belongs to x and bit 1 to y. With the
// tensor cores a lane has what they give it (mma.cuh): pairs of columns, 4 lanes across and 8 down.
#pragma once

#include <climits>
#include <concepts>

#include "ops/attention/flash/tiles.cuh"
#include "ops/attention/tiled/tiled_table.h"

namespace kiln::tiled {

using flash::HeadRows;
using flash::Sequence;

constexpr float kLog2E = flash::kLog2E;

// Which steps of the ladder a kernel takes; see forward.cuh.
template <class Step>
concept LadderStep = requires {
  { Step::kSkip } -> std::convertible_to<bool>;
  { Step::kSplit } -> std::convertible_to<bool>;
  { Step::kAsync } -> std::convertible_to<bool>;
  { Step::kAtomic } -> std::convertible_to<bool>;
};

// A tile shape as a type; see tiled_table.h.
template <class Tiles>
concept NamedTileShape = requires {
  { Tiles::kShape } -> std::convertible_to<TileShape>;
};

template <TileShape kShape>
struct Lane {
  static_assert(kShape.lanes == 4 || kShape.lanes == 8 || kShape.lanes == 16);
  int x, y, first_row;  // the warp's, in the block

  __device__ Lane() {
    const int lane = static_cast<int>(threadIdx.x) % 32, spread = lane % 2 + lane / 4 * 2;  // all but bit 1
    x = kShape.tensor_cores() ? lane % 4 : spread % kShape.lanes;
    y = kShape.tensor_cores() ? lane / 4 : lane / 2 % 2 + spread / kShape.lanes * 2;
    first_row = static_cast<int>(threadIdx.x) / 32 * kShape.warp_rows();
  }
  __device__ int row(int i) const { return first_row + y + kShape.lanes_down() * i; }
  __device__ int column(int j) const {
    return kShape.tensor_cores() ? j / 2 * 8 + 2 * x + j % 2 : x + kShape.lanes * j;
  }
  // Of four outputs, the first; the other three follow it, or with the tensor cores one follows and two are 8
  // further on.
  __device__ int channel(int m) const {
    return kShape.tensor_cores() ? 16 * m + 2 * x : 4 * (x + kShape.lanes * m);
  }
};

// Over the lanes that share a row.
template <TileShape kShape, class F>
__device__ float across(float value, F f) {
  value = f(value, __shfl_xor_sync(0xffffffffu, value, 1));
  if constexpr (kShape.tensor_cores()) return f(value, __shfl_xor_sync(0xffffffffu, value, 2));
  value = f(value, __shfl_xor_sync(0xffffffffu, value, 4));
  value = f(value, __shfl_xor_sync(0xffffffffu, value, 8));
  if constexpr (kShape.lanes == 16) value = f(value, __shfl_xor_sync(0xffffffffu, value, 16));
  return value;
}

template <class T, int kWidth, int kRows>
struct alignas(16) Tile {
  T row[kRows][kWidth + 16 / static_cast<int>(sizeof(T))];

  __device__ float4 four(int r, int c) const {
    if constexpr (std::is_same_v<T, float>) {
      return *reinterpret_cast<const float4*>(&row[r][c]);
    } else {
      static_assert(std::is_same_v<T, bf16>);  // the upper half of an fp32 each
      const uint2 two = *reinterpret_cast<const uint2*>(&row[r][c]);
      return {__uint_as_float(two.x << 16), __uint_as_float(two.x & 0xffff0000u),
              __uint_as_float(two.y << 16), __uint_as_float(two.y & 0xffff0000u)};
    }
  }
};

// Rows in shared memory that a matmul reads four channels at a time.
template <class Rows>
concept RowsOfFours = requires(const Rows& rows) {
  { rows.four(0, 0) } -> std::convertible_to<float4>;
};

// A block's scores, probabilities or their gradients, on their way from the lanes that made them to those
// that multiply by them.
template <TileShape kShape>
struct alignas(16) ScoreTile {
  float row[kShape.rows][kShape.columns + kShape.lanes];  // the padding spreads what a warp writes at a time
};

// Rows first, first + 1, ... of a head; zeros past `rows` and past channel D. Complete after
// wait_for_tiles().
template <bool kAsync, int kThreads, class T, int kWidth, int kRows>
__device__ void load(Tile<T, kWidth, kRows>& tile, const HeadRows<T>& from, int b, int head, int D, int first,
                     int rows) {
  constexpr int kVector = Pack<T>::kSize, kPerRow = kWidth / kVector, kAll = kRows * kPerRow;
  // A copy is not waited for, and addresses at hand cost registers; a plain load is worth having under way.
  constexpr int kAtOnce = kAsync ? 2 : 4;
  const int left = rows - first < kRows ? rows - first : kRows;
  const int stride = static_cast<int>(from.row_stride);
  const T* base = from.at(b, head, D, left > 0 ? first : 0);
  if (from.vectorizable) {
#pragma unroll kAtOnce
    for (int step = 0; step < (kAll + kThreads - 1) / kThreads; ++step) {
      const int i = step * kThreads + static_cast<int>(threadIdx.x);
      if (kAll % kThreads != 0 && i >= kAll) break;
      const int r = i / kPerRow, c = i % kPerRow * kVector;
      const bool valid = r < left && c < D;
      if constexpr (kAsync) {
        cp_async(&tile.row[r][c], base + (valid ? r * stride + c : 0), valid);
      } else {
        store_pack(&tile.row[r][c], valid ? load_pack(base + r * stride + c) : Pack<T>{});
      }
    }
    return;
  }
  for (int i = threadIdx.x; i < kRows * kWidth; i += kThreads) {
    const int r = i / kWidth, c = i % kWidth;
    tile.row[r][c] = r < left && c < D ? base[static_cast<int64_t>(r) * from.row_stride + c] : T{};
  }
}

// All tiles loaded so far are in shared memory, for the whole block; and nobody reads what was read before,
// so that it may be overwritten.
template <bool kAsync>
__device__ void wait_for_tiles() {
  if constexpr (kAsync) {
    cp_async_commit();
    cp_async_wait<0>();
  }
  __syncthreads();
}

// Which pairs of a block's rows and a tile's columns are seen. Rows are queries and columns keys, or, with
// kKeysDown, the other way round.
template <bool kKeysDown>
struct Seen {
  int diagonal;  // a key may be this much further on than the query, counted from the first of each
  int columns;   // those that exist

  __device__ Seen(const Sequence& at, int query, int key) {
    diagonal = at.causal ? query - key + at.Tk - at.Tq : INT_MAX;
    columns = kKeysDown ? at.Tq - query : at.Tk - key;
  }
  __device__ bool operator()(int row, int column) const {
    return column < columns && (kKeysDown ? row - column : column - row) <= diagonal;
  }
};

template <TileShape kShape>
constexpr int kQuads = kShape.width / kShape.lanes / 4;  // of channels, that a lane has

// The lane's rows by its channels.
template <TileShape kShape>
struct Outputs {
  float4 at[kShape.per_lane][kQuads<kShape>] = {};
};

__device__ inline float component(const float4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

__device__ inline void add_scaled(float4& sum, float factor, const float4& v) {
  sum.x += factor * v.x;
  sum.y += factor * v.y;
  sum.z += factor * v.z;
  sum.w += factor * v.w;
}

// The lane's scores, or what became of them.
template <TileShape kShape>
using Values = float[kShape.per_lane][kShape.columns / kShape.lanes];

template <TileShape kShape>
__device__ void share_scores(ScoreTile<kShape>& probs, const Values<kShape>& values,
                             const Lane<kShape>& lane) {
  __syncwarp();  // what was stored there has been read: a warp's rows are its own
#pragma unroll
  for (int i = 0; i < kShape.per_lane; ++i) {
#pragma unroll
    for (int j = 0; j < kShape.columns / kShape.lanes; ++j)
      probs.row[lane.row(i)][lane.column(j)] = values[i][j];
  }
  __syncwarp();
}

// kCount values to neighbouring channels from c on.
template <int kCount, class T>
__device__ void store_values(const HeadRows<T>& to, T* at, int c, int D, const float* values) {
  if (to.vectorizable) {
    if (c >= D) return;  // D is a multiple of four then
    Wide<T, kCount> several;
    if (to.accumulate) several = load_wide<kCount>(at + c);
#pragma unroll
    for (int n = 0; n < kCount; ++n)
      several.v[n] = static_cast<T>(to.accumulate ? values[n] + static_cast<float>(several.v[n]) : values[n]);
    store_wide(at + c, several);
    return;
  }
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    if (c + n < D) put_grad(at[c + n], values[n], to.accumulate);
  }
}

// The lane's outputs, each row times factor(i), to rows first .. of a head.
template <TileShape kShape, class T, class F>
__device__ void store(const HeadRows<T>& to, int b, int head, int D, int first, int rows,
                      const Outputs<kShape>& out, const Lane<kShape>& lane, F factor) {
#pragma unroll
  for (int i = 0; i < kShape.per_lane; ++i) {
    const int row = first + lane.row(i);
    if (row >= rows) continue;
    T* at = to.at(b, head, D, row);
#pragma unroll
    for (int m = 0; m < kQuads<kShape>; ++m) {
      const float4& v = out.at[i][m];
      const float four[4] = {v.x * factor(i), v.y * factor(i), v.z * factor(i), v.w * factor(i)};
      if constexpr (kShape.tensor_cores()) {
        store_values<2>(to, at, lane.channel(m), D, four);
        store_values<2>(to, at, lane.channel(m) + 8, D, four + 2);
      } else {
        store_values<4>(to, at, lane.channel(m), D, four);
      }
    }
  }
}

}  // namespace kiln::tiled
