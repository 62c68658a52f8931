// flash_hopper's backward: the shape of a block, what it has in shared memory, and what it is told.
#pragma once

#include "ops/attention/cuda_hopper_careful.cuh"
#include "ops/attention/cuda_hopper_walk.h"
#include "ops/cuda_device/tma.cuh"

namespace kiln::hopper {

template <class T_, int kD_>
struct BackwardShape {
  using T = T_;
  static constexpr int kD = kD_, kKeys = 128, kStages = 2, kThreads = 384;
  static constexpr int kQueries = kD <= 64 ? 128 : 64;
  static constexpr bool kSplitsQueries = kQueries == 128;  // dq between the warpgroups; else its channels
  static constexpr int kRegisters = 232, kCopyRegisters = 40;
  static_assert(shares_registers(2, 1, kRegisters, kCopyRegisters));
  using Lot = KeyLot<kKeys, kQueries>;
};

template <class Shape>
struct BackwardMemory {
  using T = typename Shape::T;
  SwizzledTile<T, Shape::kD, Shape::kKeys> k[2], v[2];  // of two lots in turn; dk and dv on the way out
  SwizzledTile<T, Shape::kD, Shape::kQueries> q[Shape::kStages], dout[Shape::kStages];
  SwizzledTile<T, Shape::kQueries, Shape::kKeys> ds[2];  // rows are keys
  alignas(16) float lse2[Shape::kStages][Shape::kQueries];
  alignas(16) float delta[Shape::kStages][Shape::kQueries];
  Signal k_there[2], v_there[2], lot_free[2];
  Signal q_there[Shape::kStages], q_free[Shape::kStages], dout_there[Shape::kStages],
      dout_free[Shape::kStages];
  Signal turn_there[2], turn_over[2];  // of each warpgroup, to add to dq
  int number;                          // the block's

  __device__ void init() {
    for (int i = 0; i < 2; ++i) {
      k_there[i].init(1);
      v_there[i].init(1);
      lot_free[i].init(8);  // a warp each
      turn_there[i].init(1);
      turn_over[i].init(4);
    }
    for (int i = 0; i < Shape::kStages; ++i) {
      q_there[i].init(1);
      dout_there[i].init(1);
      q_free[i].init(8);
      dout_free[i].init(8);
    }
    show_signals();
  }
};

template <class T>
struct BackwardArguments {
  AttentionProblem p;
  Sizes z;
  Lots lots;
  CUtensorMap q, k, v, dout;
  HeadRows<const T> q_rows, k_rows, v_rows, dout_rows;
  HeadRows<T> dq, dk, dv;     // base null: not wanted
  const float *lse2, *delta;  // [B, H, padded]: lse times log2(e), Inf where a query sees nothing or is none
  int padded;
  float4* dq_sums;  // [B, H, tiles][a tile's sums in the order in which threads hold them]
  int* turns;       // [B, H, tiles, 2]: how many shares have been added, for each warpgroup
  int* ticket;      // numbers blocks in the order in which they start; null where all start at once
  bool atomic;      // shares of dq are added as they come, to zeros, and written out by another kernel

  __device__ CarefulGradients<T> careful() const {
    return {p, q_rows, k_rows, v_rows, dout_rows, lse2, delta, padded};
  }
};

}  // namespace kiln::hopper
