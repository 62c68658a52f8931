// flash_hopper's backward: the shape of a block, what it has in shared memory, and what it is told.
#pragma once

#include "ops/attention/hopper/non_finite.cuh"
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
  static constexpr int kValues = kD > 64 ? 1 : 2;          // lots whose v shared memory holds
  static constexpr int kRegisters = 232, kCopyRegisters = 40;
  static_assert(shares_registers(2, kRegisters, kCopyRegisters));
  using Lot = KeyLot<kKeys, kQueries>;
  static constexpr bool kVaried = false;
};

template <class Shape>
struct BackwardMemory {
  using T = typename Shape::T;
  using Keys = SwizzledTile<T, Shape::kD, Shape::kKeys>;
  Keys k[2], v[Shape::kValues];  // of lots in turn
  SwizzledTile<T, Shape::kD, Shape::kQueries> q[Shape::kStages], dout[Shape::kStages];
  SwizzledTile<T, Shape::kQueries, Shape::kKeys> ds[2];  // rows are keys
  alignas(16) float lse2[Shape::kStages][Shape::kQueries];
  alignas(16) float delta[Shape::kStages][Shape::kQueries];
  alignas(128) float4 dq[2][8 * 128];  // a step's share of each warpgroup, as its threads hold it
  Signal k_there[2], k_free[2], v_free[Shape::kValues];
  Signal dq_there[2][2], dq_free[2][2];  // of each warpgroup, at even and at odd steps
  Signal q_there[Shape::kStages], q_free[Shape::kStages], dout_there[Shape::kStages],
      dout_free[Shape::kStages];
  // Key c of the lot is seen by query r of the tile where c <= r + diagonal, and c < keys.
  struct Border {
    bool crossed;  // some query does not see some key
    int diagonal, keys;
  } border[Shape::kStages];
  // For each warp of the two groups, a bit for each of the block's lots: it must be done again, carefully.
  uint32_t careful_keys[8][kMostLots / 32], careful_queries[8][kMostLots / 32];
  int number;  // the block's
  struct Nothing {};
  [[no_unique_address]] std::conditional_t<Shape::kVaried, Sizes, Nothing> z;  // of its lot's sequence

  // dk goes out through the memory of its k, dv through that of v, or, so that the next v can come, of ds.
  __device__ Keys& dv_on_its_way(int s) {
    static_assert(Shape::kValues == 2 || sizeof(ds) >= sizeof(Keys));
    if constexpr (Shape::kValues == 2) return v[s % 2];
    return reinterpret_cast<Keys&>(ds);
  }

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
      k_free[i].init(8);  // a warp each
      for (Signal& there : dq_there[i]) there.init(4);
      for (Signal& free : dq_free[i]) free.init(1);
    }
    for (Signal& free : v_free) free.init(8);
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
static_assert(sizeof(BackwardMemory<BackwardShape<bf16, 64>>) <= 227 * 1024);
static_assert(sizeof(BackwardMemory<Varied<BackwardShape<bf16, 128>>>) <= 227 * 1024);

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
  int* turns;         // [B, H, tiles, 2]: how many shares have been added, early and late
  int* ticket;        // numbers blocks in the order in which they start; null where all start at once
  bool atomic;        // shares of dq are added as they come, to zeros
  bool finishes;      // blocks write dq out; else another kernel does

  Sequences sequences;

  template <class Shape>
  __device__ const Sizes& sizes(const BackwardMemory<Shape>& m) const {
    if constexpr (Shape::kVaried)
      return m.z;
    else
      return z;
  }
  __device__ CarefulGradients<T> careful(const Sizes& its) const {
    return {its, q_rows, k_rows, v_rows, dout_rows, lse2, delta, padded};
  }
};

}  // namespace kiln::hopper
