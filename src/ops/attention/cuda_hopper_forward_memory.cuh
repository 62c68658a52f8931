// flash_hopper's forward: the shape of a block, what it has in shared memory, and what it is told.
#pragma once

#include "ops/attention/hopper/non_finite.cuh"
#include "ops/attention/cuda_hopper_parts.h"
#include "ops/attention/hopper/hopper_table.h"
#include "ops/cuda_device/tma.cuh"

namespace kiln::hopper {

template <class T_, ForwardTiles kTiles>
struct ForwardShape {
  using T = T_;
  static constexpr int kD = kTiles.width, kGroups = kTiles.groups, kKeys = kTiles.keys,
                       kStages = kTiles.stages;
  static constexpr int kParts = kTiles.parts(), kBlocks = kTiles.blocks();
  static constexpr int kQueries = kTiles.queries(), kThreads = kTiles.threads();
  static constexpr int kRegisters = kTiles.registers(), kCopyRegisters = kTiles.copy_registers();
  static_assert(shares_registers(kGroups, kRegisters, kCopyRegisters, kBlocks));
  static constexpr bool kVaried = false;
};

template <class Shape>
struct ForwardMemory {
  using T = typename Shape::T;
  SwizzledTile<T, Shape::kD, Shape::kQueries> q[Shape::kParts];  // o on the way out
  SwizzledTile<T, Shape::kD, Shape::kKeys> k[Shape::kStages], v[Shape::kStages];
  Signal q_there[Shape::kParts], q_free[Shape::kParts], k_there[Shape::kStages], k_free[Shape::kStages],
      v_there[Shape::kStages], v_free[Shape::kStages];
  QueryPart<Shape::kQueries, Shape::kKeys> part[Shape::kParts];  // whose q these are
  struct Rounds {                                                // none at first
    int first, last;
    __device__ void add(int r) {
      if (last < 0) first = r;
      last = r;
    }
  } not_finite[4 * Shape::kGroups];  // of each warp: it had something that was no number in these, or between

  struct Nothing {};
  [[no_unique_address]] std::conditional_t<Shape::kVaried, Sizes, Nothing> z;  // of the block's sequence

  __device__ void init() {
    for (int i = 0; i < Shape::kParts; ++i) {
      q_there[i].init(1);
      q_free[i].init(Shape::kGroups);
    }
    for (int i = 0; i < Shape::kStages; ++i) {
      k_there[i].init(1);
      v_there[i].init(1);
      k_free[i].init(4 * Shape::kGroups);  // a warp each
      v_free[i].init(4 * Shape::kGroups);
    }
    for (Rounds& rounds : not_finite) rounds = {0, -1};
    show_signals();
  }
};

template <class T>
struct ForwardArguments {
  AttentionProblem p;
  CUtensorMap q, k, v, o;
  HeadRows<const T> q_rows, k_rows, v_rows;
  HeadRows<T> o_rows;
  float* lse;  // [B, H, Tq]
  Sizes z;
  Parts parts;
  Sequences sequences;

  __device__ static int number(int r) {
    return part_number(static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x), r);
  }
  __device__ int64_t stat(const Sizes& its, int b, int h, int i) const {  // the place of a query's lse
    return (b * p.H + h) * p.query_rows() + its.first_query + i;
  }
  template <class Shape>
  __device__ bool has_part(int r) const {
    return Shape::kVaried ? r == 0 : number(r) < parts.count();
  }
  template <class Shape>
  __device__ const Sizes& sizes(const ForwardMemory<Shape>& m) const {
    if constexpr (Shape::kVaried)
      return m.z;
    else
      return z;
  }
  template <class Shape>
  __device__ QueryPart<Shape::kQueries, Shape::kKeys> part(const ForwardMemory<Shape>& m, int r) const {
    return {sizes(m), parts, number(r)};
  }
};

}  // namespace kiln::hopper
