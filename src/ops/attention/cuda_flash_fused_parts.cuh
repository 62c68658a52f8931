// flash's backward in one kernel (cuda_flash_fused_backward.cuh): the shape of a block, what it has in shared
// memory and what it is told; its products beside those of cuda_flash_ampere.cuh; and how it takes its turn
// at the sums of dq.
#pragma once

#include "ops/attention/flash/ampere.cuh"
#include "ops/attention/cuda_hopper_walk.h"

namespace kiln::flash {

using hopper::Lots;
using hopper::Sizes;

// kShare: warps that have the same keys. Alone, a warp makes all scores of its keys, and P^T and dS^T go from
// the registers they were made in to dv and dk. Of two, each makes the scores of half the queries, then all
// of dv and dk for half the channels: P goes through shared memory as dS does, which takes 18 KiB more, and
// in turn each word read serves twice the products.
template <class T_, int kD_, FlashKeys kBlock_>
struct FusedShape {
  using T = T_;
  static constexpr FlashKeys kBlock = kBlock_;
  static constexpr int kD = kD_, kStrips = kBlock.strips, kShare = kBlock.share, kThreads = 128 * kShare;
  static constexpr int kKeys = 64 * kStrips, kOwn = 16 * kStrips;               // of the block, of a warp
  static constexpr int kChannels = kD / kShare;                                 // of a warp's sums
  static constexpr int kBlocks = kShare == 2 ? 1 : kD * kStrips <= 64 ? 3 : 2;  // of a multiprocessor
  static constexpr int kAtOnce = 32;  // queries of a tile whose scores a warp has in registers
  static_assert(kTile / kShare % kAtOnce == 0 && kChannels % 8 == 0);
  using Lot = hopper::KeyLot<kKeys, kTile>;
  using Walk = hopper::QueryWalk<Lot>;
};

// P, where warps share keys.
template <class Shape, int kShare = Shape::kShare>
struct StoredP {
  PaddedTile<typename Shape::T, kTile, Shape::kKeys> p;  // rows are keys
};
template <class Shape>
struct StoredP<Shape, 1> {};

template <class Shape>
struct FusedMemory : StoredP<Shape> {
  using T = typename Shape::T;
  PaddedTile<T, Shape::kD, Shape::kKeys> k, v;  // dk and dv on their way out
  PaddedTile<T, Shape::kD> q[2], dout[2];
  PaddedTile<T, kTile, Shape::kKeys> ds;  // rows are keys
  alignas(16) float lse2[2][kTile];
  alignas(16) float delta[2][kTile];
  int number;  // the block's
  Sizes z;     // of its sequence; here and not in registers, which are full
  // Thread 0's: where a turn is to be given on, and how many shares there are then.
  int* turn_given;
  int shares;
};

template <class T>
struct FusedArguments {
  AttentionProblem p;
  Sizes z;
  Lots lots;
  HeadRows<T> q, k, v, dout, dq, dk, dv;  // base null: not wanted
  const float *lse2, *delta;  // [B, H, padded]: lse times log2(e), Inf where a query sees nothing or is none
  int padded;
  float4* dq_sums;    // [B, H, tiles][a tile's sums in the order in which threads hold them]
  int64_t late_sums;  // how far behind these the late ones lie
  int* turns;         // [B, H, tiles, 2]: how many shares have been added, early and late
  int* ticket;        // numbers blocks in the order in which they start; null where all start at once
  Sequences sequences;

  __device__ int64_t tile_number(const Sizes& its, int b, int h, int tile) const {
    return static_cast<int64_t>(b * its.H + h) * lots.tiles + its.first_tile + tile;
  }
};

// Which pairs of a tile's queries and a lot's keys are seen.
struct SeenPairs {
  int diagonal, queries, keys;

  __device__ SeenPairs(const Sizes& z, int i0, int j0)
      : diagonal(z.causal ? i0 - j0 + z.ahead : 1 << 20), queries(z.Tq - i0), keys(z.Tk - j0) {}
  __device__ bool all(int lot) const { return queries >= kTile && keys >= lot && diagonal >= lot - 1; }
  __device__ bool operator()(int query, int key) const {
    return key <= query + diagonal && query < queries && key < keys;
  }
};

// out += W X over kCount rows of x from `first` on, and its channels from `channel` on, leaving out every
// pair that is not seen: a masked value must not reach the sum even as 0 * NaN. Slow, and for tiles with
// something that is not a number.
template <int kCount, int kN, class Tile, class Weight, class Seen>
__device__ void multiply_seen(TileSums (&out)[kN], const Tile& x, int first, int channel, Weight weight,
                              Seen seen) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
#pragma unroll 1
  for (int r = 0; r < kCount; ++r) {
    const float low = weight(g, r), high = weight(g + 8, r);
    const bool low_seen = seen(g, r), high_seen = seen(g + 8, r);
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const auto* two = x.at(first + r, channel + n * 8 + 2 * q);
      const float x0 = static_cast<float>(two[0]), x1 = static_cast<float>(two[1]);
      if (low_seen) out[n].at[0] += low * x0, out[n].at[1] += low * x1;
      if (high_seen) out[n].at[2] += high * x0, out[n].at[3] += high * x1;
    }
  }
}

// The same with weights of the warp's keys that are in shared memory, those from query `first` on.
template <int kCount, int kM, int kN, class Weights, class Tile>
__device__ void multiply_carefully(TileSums (&out)[kM][kN], const Weights& weights, const Tile& x,
                                   const SeenPairs& seen, int key, int first, int channel) {
  __syncwarp();
#pragma unroll
  for (int strip = 0; strip < kM; ++strip) {
    const int row = key + 16 * strip;
    multiply_seen<kCount>(
        out[strip], x, first, channel,
        [&](int k, int query) { return static_cast<float>(*weights.at(row + k, first + query)); },
        [&](int k, int query) { return seen(first + query, row + k); });
  }
  __syncwarp();
}

// A warp's [16 kM, 8 kN] sums to the tile, from this row and column on, rounded.
template <class Tile, int kM, int kN>
__device__ void write_strips(Tile& tile, int row, int column, const TileSums (&sums)[kM][kN]) {
  using T = std::remove_reference_t<decltype(*tile.at(0, 0))>;
  const int lane = threadIdx.x % 32, g = lane / 4, col = lane % 4 * 2;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const TileSums& x = sums[m][n];
      T* to = tile.at(row + 16 * m + g, column + n * 8 + col);
      *reinterpret_cast<uint32_t*>(to) = two_of(x.at[0], x.at[1], T{});
      *reinterpret_cast<uint32_t*>(to + 8 * (tile.at(1, 0) - tile.at(0, 0))) = two_of(x.at[2], x.at[3], T{});
    }
  }
}

// sums[.][n] += A X for X's 16 rows from `row` on, and its channels from `channel` on, 8 at a time.
template <class T, int kM, int kN, int kD, int kRows>
__device__ void multiply_add_columns(TileSums (&sums)[kM][kN], const TileA (&a)[kM],
                                     const PaddedTile<T, kD, kRows>& x, int row, int channel) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < kN; n += 2) {
    uint32_t w[4];
    const T* from = x.at(row + lane % 16, channel + n * 8 + lane / 16 * 8);
    if (n + 1 < kN)
      load_tiles_transposed(w, from);
    else
      load_two_transposed(w[0], w[1], from);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      multiply_add<T>(sums[m][n], a[m], {{w[0], w[1]}});
      if (n + 1 < kN) multiply_add<T>(sums[m][n + 1], a[m], {{w[2], w[3]}});
    }
  }
}

// A step's share of dv or dk: the weights of the warp's keys, as they are stored, times rows of x.
template <class T, int kM, int kN, int kD, int kKeys>
__device__ void multiply_stored(TileSums (&sums)[kM][kN], const PaddedTile<T, kTile, kKeys>& weights, int key,
                                const PaddedTile<T, kD>& x, int channel) {
#pragma unroll
  for (int k = 0; k < kTile; k += 16) {
    TileA a[kM];
#pragma unroll
    for (int m = 0; m < kM; ++m) a[m] = Ampere::load_a(weights, key + 16 * m, k);
    multiply_add_columns(sums, a, x, k, channel);
  }
}

// Sixteen queries of a step's dq: dS^T, transposed as it is read, times the lot's keys.
template <class T, int kN, int kD, int kKeys>
__device__ void multiply_transposed(TileSums (&dq)[1][kN], const PaddedTile<T, kTile, kKeys>& ds, int query,
                                    const PaddedTile<T, kD, kKeys>& keys, int channel) {
  const int lane = threadIdx.x % 32;
#pragma unroll 4
  for (int k = 0; k < kKeys; k += 16) {
    TileA a[1];
    load_tiles_transposed(a[0].word, ds.at(k + lane / 16 * 8 + lane % 8, query + lane / 8 % 2 * 8));
    multiply_add_columns(dq, a, keys, k, channel);
  }
}

__device__ inline int shares_at(const int* flag) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

// Thread 0 gives a turn on once the shares are in memory. It is called half a step after they were sent, so
// that they have had time to arrive; whoever is next is a step behind anyway.
template <class Shape>
__device__ void give_turn_on(FusedMemory<Shape>& m) {
  if (threadIdx.x != 0 || m.turn_given == nullptr) return;
  __threadfence();
  asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(m.turn_given), "r"(m.shares) : "memory");
  m.turn_given = nullptr;
}

__device__ inline void add_share(float4* to, const TileSums& x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x.at[0]),
               "f"(x.at[1]), "f"(x.at[2]), "f"(x.at[3])
               : "memory");
#else
  auto* one = reinterpret_cast<float*>(to);
#pragma unroll
  for (int e = 0; e < 4; ++e) atomicAdd(one + e, x.at[e]);
#endif
}

}  // namespace kiln::flash
