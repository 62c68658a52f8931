// flash_hopper's backward: the shape of a block, what it has in shared memory, and what it is told.
#pragma once

#include "ops/attention/cuda_hopper_careful.cuh"
#include "ops/attention/cuda_hopper_walk.h"
#include "ops/attention/cuda_hopper_workspace.h"
#include "ops/cuda_device/tma.cuh"

namespace kiln::hopper {

template <class T_, int kD_>
struct BackwardShape {
  using T = T_;
  static constexpr int kD = kD_, kKeys = 128, kStages = 2, kThreads = 384;
  static constexpr int kQueries = static_cast<int>(hopper_queries(kD));
  static constexpr bool kSplitsQueries = kQueries == 128;  // dq between the warpgroups; else its channels
  static constexpr int kRegisters = 232, kCopyRegisters = 40;
  static_assert(shares_registers(2, kRegisters, kCopyRegisters));
  using Lot = KeyLot<kKeys, kQueries>;
};

// Where a step's share of dq belongs.
struct DqShare {
  float4* sums;
  bool first;  // begins them
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
  int first_query[Shape::kStages];
  // Of two steps in turn, for the last two of each warpgroup: it is the block's turn to add to dq, and what
  // to; a warpgroup has added; that has been given on.
  Signal turn_there[2], turn_over[2][2], turn_given[2][2];
  DqShare share[2];
  // For each warp of the two groups, a bit for each of the block's lots: it must be done again, carefully.
  uint32_t careful_keys[8][kMostLots / 32], careful_queries[8][kMostLots / 32];
  int number;  // the block's

  // By one lane of a warp.
  __device__ void note(uint32_t (&bits)[8][kMostLots / 32], int warp, int s) {
    bits[warp][s / 32] |= 1u << s % 32;
  }

  // The block's s-th lot. Read anew each time: to keep it would take registers that the products need.
  __device__ typename Shape::Lot lot(const Sizes& z, const Lots& l, int s) const {
    return {z, l, *const_cast<const volatile int*>(&number), s};
  }

  __device__ void init() {
    for (int i = 0; i < 2; ++i) {
      k_there[i].init(1);
      v_there[i].init(1);
      lot_free[i].init(8);  // a warp each
      turn_there[i].init(1);
      for (Signal& over : turn_over[i]) over.init(4);
      for (Signal& given : turn_given[i]) given.init(1);
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

static_assert(sizeof(BackwardMemory<BackwardShape<bf16, 128>>) <= 227 * 1024);

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
  float4* dq_sums;    // [B, H, tiles][a tile's sums in the order in which threads hold them]
  int64_t late_sums;  // how far behind these the late ones lie
  int* turns;     // [B, H, tiles, 2, 2]: how many shares have been added, early and late, by each warpgroup
  int* ticket;    // numbers blocks in the order in which they start; null where all start at once
  bool atomic;    // shares of dq are added as they come, to zeros
  bool finishes;  // blocks write dq out; else another kernel does

  __device__ CarefulGradients<T> careful() const {
    return {p, q_rows, k_rows, v_rows, dout_rows, lse2, delta, padded};
  }
};

}  // namespace kiln::hopper
