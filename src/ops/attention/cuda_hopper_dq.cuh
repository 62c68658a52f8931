// How the blocks of flash_hopper's backward add up dq: in fp32, each share at its turn, the last keys first,
// and so always to the same bits. The turn comes by itself: under a causal mask a lot of keys begins with the
// queries on the diagonal, and meets those of the next lot a step after it did. The first keys come last, and
// their block writes dq out.
#pragma once

#include "ops/attention/cuda_hopper_memory.cuh"

namespace kiln::hopper {

__device__ inline int turn_at(const int* flag) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}
__device__ inline void add_at(float4* to, const TileSums& c) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(c.at[0]),
               "f"(c.at[1]), "f"(c.at[2]), "f"(c.at[3])
               : "memory");
}

// How many shares of a tile of dq come before lot j's.
template <class Shape>
__device__ int turn_of(const Sizes& z, int j, int tile) {
  const int end = (tile + 1) * Shape::kQueries;
  return (z.visible((end < z.Tq ? end : z.Tq) - 1) - 1) / Shape::kKeys - j;
}

// One thread for each of the two warpgroups asks whether it is their turn and gives it on when they have
// added: both mean a round trip to memory, in which a warpgroup would make half a step.
template <class Shape>
__device__ void keep_turns(const BackwardArguments<typename Shape::T>& a, BackwardMemory<Shape>& m,
                           int group) {
  using Lot = typename Shape::Lot;
  int step = 0;
  for (int s = 0;; ++s) {
    const Lot at(a.z, a.lots, m.number, s);
    if (!at.exists) return;
    QueryWalk<Lot> walk(a.z, at);
    for (int n = 0; n < at.steps; ++n, ++step, walk.next(at)) {
      const int turn = turn_of<Shape>(a.z, at.j, walk.tile);
      int* flag = a.turns + (static_cast<int64_t>(at.b * a.z.H + walk.h) * at.tiles + walk.tile) * 2 + group;
      while (turn > 0 && turn_at(flag) != turn) __nanosleep(20);
      m.turn_there[group].arrive();
      m.turn_over[group].wait(step % 2);
      if (at.j == 0) continue;
      __threadfence();
      asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(flag), "r"(turn + 1) : "memory");
    }
  }
}

// A warpgroup's share of one step.
template <class Shape>
struct QueryGradient {
  using T = typename Shape::T;
  const BackwardArguments<T>& a;
  BackwardMemory<Shape>& m;
  int group, b, h, tile, j, parity;
  int turn = 0;
  float4* sums = nullptr;

  __device__ QueryGradient(const BackwardArguments<T>& a, BackwardMemory<Shape>& m, int group,
                           const typename Shape::Lot& at, const QueryWalk<typename Shape::Lot>& walk,
                           int step)
      : a(a), m(m), group(group), b(at.b), h(walk.h), tile(walk.tile), j(at.j), parity(step % 2) {
    turn = turn_of<Shape>(a.z, j, tile);
    const int64_t number = static_cast<int64_t>(b * a.z.H + h) * at.tiles + tile;
    sums = a.dq_sums + number * (Shape::kQueries * Shape::kD / 4) + group * 8 * 128 +
           static_cast<int>(threadIdx.x) % 128;
  }

  // What the share is added to: zeros, or, for the last lot, what the others have summed.
  template <int kTiles>
  __device__ void begin(TileSums (&dq)[kTiles]) {
#pragma unroll
    for (int c = 0; c < kTiles; ++c) dq[c] = {};
    if (j > 0 || turn == 0 || a.dq.base == nullptr || a.atomic) return;
    m.turn_there[group].wait(parity);
#pragma unroll
    for (int c = 0; c < kTiles; ++c) {
      const float4 others = __ldcg(sums + c * 128);
      dq[c] = {others.x, others.y, others.z, others.w};
    }
  }

  template <int kTiles>
  __device__ void end(const TileSums (&dq)[kTiles]) {
    if (a.dq.base == nullptr) return;
    if (!a.atomic && (j > 0 || turn == 0)) m.turn_there[group].wait(parity);
    if (j == 0 && !a.atomic) {
      write_out(dq);
    } else if (turn == 0 && !a.atomic) {
#pragma unroll
      for (int c = 0; c < kTiles; ++c)
        __stcg(sums + c * 128, float4{dq[c].at[0], dq[c].at[1], dq[c].at[2], dq[c].at[3]});
    } else {
#pragma unroll
      for (int c = 0; c < kTiles; ++c) add_at(sums + c * 128, dq[c]);
    }
    __syncwarp();
    if (!a.atomic && threadIdx.x % 32 == 0) m.turn_over[group].arrive();
  }

  template <int kTiles>
  __device__ void write_out(const TileSums (&dq)[kTiles]) {
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
    const int first = tile * Shape::kQueries + (Shape::kSplitsQueries ? group * 64 : 0) + warp * 16;
    const int column = Shape::kSplitsQueries ? 0 : group * 64;
    if (!all_finite(dq)) {
      const auto careful = a.careful();
      for (int i = first; i < first + 16 && i < a.z.Tq; ++i) {
        careful.template of_query<Shape::kD>(b, h, i).put(
            a.dq.at(b, h, a.z.D, i), column, min(a.z.D, column + kTiles * 8), a.z.scale, a.dq.accumulate);
      }
      return;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = first + lane / 4 + half * 8;
      if (i >= a.z.Tq) continue;
      T* row = a.dq.at(b, h, a.z.D, i);
#pragma unroll
      for (int c = 0; c < kTiles; ++c) {
        const int channel = column + c * 8 + lane % 4 * 2;
        if (channel >= a.z.D) continue;
        float x = dq[c].at[2 * half] * a.z.scale, y = dq[c].at[2 * half + 1] * a.z.scale;
        if (a.dq.accumulate) {
          x += static_cast<float>(row[channel]);
          y += static_cast<float>(row[channel + 1]);
        }
        *reinterpret_cast<uint32_t*>(row + channel) = two_of(x, y, T{});
      }
    }
  }
};

// For `atomic`: the sums of dq, half a tile a block, to where they belong.
template <class Shape>
__global__ void __launch_bounds__(128)
    hopper_write_dq_kernel(const __grid_constant__ BackwardArguments<typename Shape::T> a) {
  const Sizes& z = a.z;
  const int group = static_cast<int>(blockIdx.x % 2), warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int tiles = (z.Tq + Shape::kQueries - 1) / Shape::kQueries;
  const int64_t number = blockIdx.x / 2, head = number / tiles;
  const int first =
      static_cast<int>(number % tiles) * Shape::kQueries + (Shape::kSplitsQueries ? group * 64 : 0);
  const int column = Shape::kSplitsQueries ? 0 : group * 64;
  const float4* from = a.dq_sums + number * (Shape::kQueries * Shape::kD / 4) + group * 8 * 128 + threadIdx.x;
  for (int c = 0; c < 8 && column + c * 8 < Shape::kD; ++c) {
    const float4 sum = from[c * 128];
    const int channel = column + c * 8 + lane % 4 * 2;
    for (int half = 0; half < 2; ++half) {
      const int i = first + warp * 16 + lane / 4 + half * 8;
      if (i >= z.Tq || channel >= z.D) continue;
      auto* row = a.dq.at(head / z.H, head % z.H, z.D, i);
      put_grad(row[channel], (half == 0 ? sum.x : sum.z) * z.scale, a.dq.accumulate);
      put_grad(row[channel + 1], (half == 0 ? sum.y : sum.w) * z.scale, a.dq.accumulate);
    }
  }
}

}  // namespace kiln::hopper
