// flash_hopper's backward: the shape of a block, and what it has in shared memory.
#pragma once

#include "ops/attention/hopper/backward_tile_scheduler.h"
#include "ops/attention/hopper/backward_workspace.h"
#include "ops/attention/hopper/mask.cuh"
#include "ops/attention/hopper/non_finite.cuh"
#include "ops/cuda_device/tma.cuh"

namespace kiln::hopper {

// What the backward kernels' code asks of a shape of block. A BackwardShape, or the Varlen form of one.
template <class Shape>
concept BackwardBlockShape = requires {
  typename Shape::T;
  typename Shape::KeyBlockT;
  requires sizeof(typename Shape::T) == 2;                    // what wgmma multiplies
  requires Shape::kD % 16 == 0 && Shape::kQueries % 16 == 0;  // its K, of one matmul or another
  requires Shape::kKeys == 128 && Shape::kThreads == 384;     // 64 keys to each of two consumer warpgroups
  requires Shape::kStages == 2;                               // of q and dO
  requires Shape::kVStages == 1 || Shape::kVStages == 2;
  { Shape::kSplitsQueries } -> std::convertible_to<bool>;
  { Shape::kVarlen } -> std::convertible_to<bool>;
};

template <class T_, int kD_>
struct BackwardShape {
  using T = T_;
  static constexpr int kD = kD_, kKeys = 128, kStages = 2, kThreads = 384;
  static constexpr int kQueries = static_cast<int>(hopper_queries(kD));
  static constexpr bool kSplitsQueries = kQueries == 128;  // dq between the warpgroups; else its channels
  static constexpr int kVStages = kD > 64 ? 1 : 2;         // key blocks whose v shared memory holds
  static constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;
  static_assert(
      register_split_fits(2, kConsumerRegisters, kProducerRegisters),
      "the warpgroups of a block ask for more registers than it starts with: setmaxnreg would hang");
  using KeyBlockT = KeyBlock<kKeys, kQueries>;
  static constexpr bool kVarlen = false;
};

// A stage is full when TMA has brought its bytes (dq: when the consumers have written it), and empty when its
// readers have arrived.
template <BackwardBlockShape Shape>
struct BackwardSmem {
  using T = typename Shape::T;
  using Keys = SwizzledTile<T, Shape::kD, Shape::kKeys>;
  Keys k[2], v[Shape::kVStages];  // of one key block after the other
  SwizzledTile<T, Shape::kD, Shape::kQueries> q[Shape::kStages], dout[Shape::kStages];
  SwizzledTile<T, Shape::kQueries, Shape::kKeys> ds[2];  // rows are keys
  alignas(16) float lse2[Shape::kStages][Shape::kQueries];
  alignas(16) float delta[Shape::kStages][Shape::kQueries];
  alignas(128) float4 dq[2][8 * 128];  // a step's dq of each warpgroup, as its threads hold it
  Mbarrier k_full[2], k_empty[2], v_empty[Shape::kVStages];  // v comes with the first dO
  Mbarrier dq_full[2][2], dq_empty[2][2];                    // of each warpgroup, at even and at odd steps
  Mbarrier q_full[Shape::kStages], q_empty[Shape::kStages], dout_full[Shape::kStages],
      dout_empty[Shape::kStages];
  KeyBorder border[Shape::kStages];
  // For each consumer warp, a bit for each of the block's key blocks: its gradients were not finite.
  uint32_t non_finite_keys[8][kMaxKeyBlocks / 32], non_finite_queries[8][kMaxKeyBlocks / 32];
  int number;  // the CTA's, for the scheduler
  struct Nothing {};
  [[no_unique_address]] std::conditional_t<Shape::kVarlen, SeqlenInfo, Nothing>
      z;  // of its key block's sequence

  // dk goes out through the memory of its k, dv through that of v, or, so that the next v can come, of ds.
  __device__ Keys& dv_staging(int s) {
    static_assert(Shape::kVStages == 2 || sizeof(ds) >= sizeof(Keys));
    if constexpr (Shape::kVStages == 2) return v[s % 2];
    return reinterpret_cast<Keys&>(ds);
  }

  // By one lane of a warp.
  __device__ void mark(uint32_t (&bits)[8][kMaxKeyBlocks / 32], int warp, int s) {
    bits[warp][s / 32] |= 1u << s % 32;
  }

  // The CTA's s-th key block. Read anew each time: to keep it would take registers that the matmuls need.
  __device__ typename Shape::KeyBlockT key_block(const SeqlenInfo& z, const BackwardTileScheduler& l,
                                                 int s) const {
    return {z, l, *const_cast<const volatile int*>(&number), s};
  }

  __device__ void init() {
    for (int i = 0; i < 2; ++i) {
      k_full[i].init(1);
      k_empty[i].init(8);                                 // a lane of each consumer warp
      for (Mbarrier& full : dq_full[i]) full.init(4);     // a lane of each warp of the warpgroup
      for (Mbarrier& empty : dq_empty[i]) empty.init(1);  // the thread that stores dq
    }
    for (Mbarrier& empty : v_empty) empty.init(8);
    for (int i = 0; i < Shape::kStages; ++i) {
      q_full[i].init(1);
      dout_full[i].init(1);
      q_empty[i].init(8);
      dout_empty[i].init(8);
    }
    fence_mbarrier_init();
  }
};

static_assert(sizeof(BackwardSmem<BackwardShape<bf16, 128>>) <= 227 * 1024);
static_assert(sizeof(BackwardSmem<BackwardShape<bf16, 64>>) <= 227 * 1024);
static_assert(sizeof(BackwardSmem<Varlen<BackwardShape<bf16, 128>>>) <= 227 * 1024);

}  // namespace kiln::hopper
