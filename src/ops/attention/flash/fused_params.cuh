// flash's fused backward (fused_backward.cuh): the shape of a block, what it has in shared memory, and what
// it is given.
#pragma once

#include "ops/attention/flash/ampere.cuh"
#include "ops/attention/hopper/backward_tile_scheduler.h"

namespace kiln::flash {

using hopper::BackwardTileScheduler;
using hopper::SeqlenInfo;

// kShare: warps that have the same keys. Alone, a warp makes all scores of its keys, and P^T and dS^T go from
// the registers they were made in to dv and dk. Of two, each makes the scores of half the queries, then all
// of dv and dk for half the channels: P goes through shared memory as dS does, which takes 18 KiB more, and
// in turn each word read serves twice the matmuls.
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
  using KeyBlockT = hopper::KeyBlock<kKeys, kTile>;
  using Walk = hopper::QueryTileIterator<KeyBlockT>;
};

// What the fused kernels' code asks of a shape of block.
template <class Shape>
concept FusedBlockShape = requires {
  typename Shape::T;
  typename Shape::KeyBlockT;
  typename Shape::Walk;
  requires sizeof(typename Shape::T) == 2;            // what mma.sync multiplies here
  requires Shape::kShare == 1 || Shape::kShare == 2;  // whether P goes through shared memory
  requires Shape::kThreads == 128 * Shape::kShare;    // four warps for each half of the channels
  requires Shape::kChannels* Shape::kShare == Shape::kD;
};

// P, where warps share keys.
template <FusedBlockShape Shape, int kShare = Shape::kShare>
struct StoredP {
  PaddedTile<typename Shape::T, kTile, Shape::kKeys> p;  // rows are keys
};
template <FusedBlockShape Shape>
struct StoredP<Shape, 1> {};

template <FusedBlockShape Shape>
struct FusedSmem : StoredP<Shape> {
  using T = typename Shape::T;
  PaddedTile<T, Shape::kD, Shape::kKeys> k, v;  // dk and dv on their way out
  PaddedTile<T, Shape::kD> q[2], dout[2];
  PaddedTile<T, kTile, Shape::kKeys> ds;  // rows are keys
  alignas(16) float lse2[2][kTile];
  alignas(16) float delta[2][kTile];
  int number;    // the CTA's, for the scheduler
  SeqlenInfo z;  // of its sequence; here and not in registers, which are full
  // Thread 0's: the semaphore to release next, and its value then.
  int* pending;
  int pending_value;
};

template <class T>
struct FusedParams {
  AttentionProblem p;
  SeqlenInfo z;
  BackwardTileScheduler scheduler;
  HeadRows<T> q, k, v, dout, dq, dk, dv;  // base null: not wanted
  const float *lse2, *delta;  // [B, H, padded]: lse times log2(e), Inf where a query sees nothing or is none
  int padded;
  float4* dq_accum;     // fp32, [B, H, tiles][a tile's sums in the order in which threads hold them]
  int64_t late_offset;  // how far behind these the late sums lie
  int* dq_semaphore;    // [B, H, tiles, 2]: how many contributions have been added, early and late
  int* ticket;          // numbers CTAs in the order in which they start; null where all start at once
  Sequences sequences;

  __device__ int64_t dq_tile_index(const SeqlenInfo& its, int b, int h, int tile) const {
    return static_cast<int64_t>(b * its.H + h) * scheduler.query_tiles + its.first_tile + tile;
  }
};

}  // namespace kiln::flash
