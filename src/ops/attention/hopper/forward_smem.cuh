// flash_hopper's forward: the shape of a block, and what it has in shared memory.
#pragma once

#include "ops/attention/hopper/forward_tile_scheduler.h"
#include "ops/attention/hopper/hopper_table.h"
#include "ops/attention/hopper/non_finite.cuh"
#include "ops/cuda_device/tma.cuh"

namespace kiln::hopper {

// What the forward kernel's code asks of a shape of block. A ForwardShape, or the Varlen form of one.
template <class Shape>
concept ForwardBlockShape = requires {
  typename Shape::T;
  requires sizeof(typename Shape::T) == 2;                         // what wgmma multiplies
  requires Shape::kD % 16 == 0 && Shape::kKeys % 16 == 0;          // its K, of the one matmul and the other
  requires Shape::kQueries == 64 * Shape::kGroups;                 // its M, a warpgroup each
  requires Shape::kThreads == 128 * (Shape::kGroups + 1);          // and the producer
  requires Shape::kStages >= 2 && Shape::kQStages >= 2;            // load one while one is read
  requires Shape::kProducerRegisters < Shape::kConsumerRegisters;  // setmaxnreg
  { Shape::kVarlen } -> std::convertible_to<bool>;
};

template <class T_, ForwardTiles kTiles>
struct ForwardShape {
  using T = T_;
  static constexpr int kD = kTiles.width, kGroups = kTiles.groups, kKeys = kTiles.keys,
                       kStages = kTiles.stages;
  static constexpr int kQStages = kTiles.q_stages(), kBlocks = kTiles.blocks();
  static constexpr int kQueries = kTiles.queries(), kThreads = kTiles.threads();
  static constexpr int kConsumerRegisters = kTiles.consumer_registers(),
                       kProducerRegisters = kTiles.producer_registers();
  static_assert(
      register_split_fits(kGroups, kConsumerRegisters, kProducerRegisters, kBlocks),
      "the warpgroups of a block ask for more registers than it starts with: setmaxnreg would hang");
  static constexpr bool kVarlen = false;
};

// A stage is full when TMA has brought its bytes, and empty when its readers have arrived.
template <ForwardBlockShape Shape>
struct ForwardSmem {
  using T = typename Shape::T;
  SwizzledTile<T, Shape::kD, Shape::kQueries> q[Shape::kQStages];  // o on the way out
  SwizzledTile<T, Shape::kD, Shape::kKeys> k[Shape::kStages], v[Shape::kStages];
  Mbarrier q_full[Shape::kQStages], q_empty[Shape::kQStages], k_full[Shape::kStages], k_empty[Shape::kStages],
      v_full[Shape::kStages], v_empty[Shape::kStages];
  WorkTile<Shape::kQueries, Shape::kKeys> work[Shape::kQStages];  // whose q these are
  struct Rounds {                                                 // none at first
    int first, last;
    __device__ void add(int r) {
      if (last < 0) first = r;
      last = r;
    }
  } non_finite[4 *
               Shape::kGroups];  // of each warp: these rounds' o had something not finite, or some between

  struct Nothing {};
  [[no_unique_address]] std::conditional_t<Shape::kVarlen, SeqlenInfo, Nothing> z;  // of the block's sequence

  __device__ void init() {
    for (int i = 0; i < Shape::kQStages; ++i) {
      q_full[i].init(1);                // the producer
      q_empty[i].init(Shape::kGroups);  // the thread of each warpgroup that stores its o
    }
    for (int i = 0; i < Shape::kStages; ++i) {
      k_full[i].init(1);
      v_full[i].init(1);
      k_empty[i].init(4 * Shape::kGroups);  // a lane of each warp
      v_empty[i].init(4 * Shape::kGroups);
    }
    for (Rounds& rounds : non_finite) rounds = {0, -1};
    fence_mbarrier_init();
  }
};

}  // namespace kiln::hopper
