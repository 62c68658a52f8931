// How the blocks of flash_hopper's backward add up dq: in fp32, each share at its turn (cuda_hopper_walk.h),
// and so always to the same bits.
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

// Among all tiles of queries.
__device__ inline int64_t tile_number(const Sizes& z, const Lots& l, int b, int h, int tile) {
  return static_cast<int64_t>(b * z.H + h) * l.tiles + tile;
}

// Calls f(step, turn, number of the tile) for all steps of the block.
template <class Shape, class F>
__device__ void for_turns(const BackwardArguments<typename Shape::T>& a, const BackwardMemory<Shape>& m,
                          F f) {
  using Lot = typename Shape::Lot;
  int step = 0;
  for (int s = 0;; ++s) {
    const Lot at(a.z, a.lots, m.number, s);
    if (!at.exists) return;
    QueryWalk<Lot> walk(a.z, at);
    for (int n = at.steps(a.z); n > 0; --n, ++step, walk.next(at))
      f(step, at.turn(a.z, a.lots, walk.tile), tile_number(a.z, a.lots, at.b, walk.h, walk.tile));
  }
}

// One thread asks whether it is the block's turn, and another for each warpgroup gives it on when that has
// added. Both mean a round trip to memory, in which a warpgroup would make half a step.
template <class Shape>
__device__ void ask_for_turns(const BackwardArguments<typename Shape::T>& a, BackwardMemory<Shape>& m) {
  constexpr int kTileSums = Shape::kQueries * Shape::kD / 4;
  for_turns(a, m, [&](int step, const Turn& mine, int64_t number) {
    const int slot = step % 2;
    if (step > 1) {
      m.turn_given[0][slot].wait((step / 2 % 2) ^ 1);
      m.turn_given[1][slot].wait((step / 2 % 2) ^ 1);
    }
    if (mine.turn > 0 && !a.atomic) {
      const int* flags = a.turns + number * 4 + (mine.late ? 2 : 0);
      while (turn_at(flags) != mine.turn || turn_at(flags + 1) != mine.turn) __nanosleep(20);
    }
    m.share[slot] = {a.dq_sums + (mine.late && !a.atomic ? a.late_sums : 0) + number * kTileSums,
                     mine.turn == 0 && !a.atomic};
    m.turn_there[slot].arrive();
  });
}

template <class Shape>
__device__ void give_turns_on(const BackwardArguments<typename Shape::T>& a, BackwardMemory<Shape>& m,
                              int group) {
  for_turns(a, m, [&](int step, const Turn& mine, int64_t number) {
    m.turn_over[group][step % 2].wait(step / 2 % 2);
    if (!a.atomic) {
      int* flag = a.turns + number * 4 + (mine.late ? 2 : 0) + group;
      __threadfence();
      asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(flag), "r"(mine.turn + 1) : "memory");
    }
    m.turn_given[group][step % 2].arrive();
  });
}

// A warpgroup's sums of one step, to where they belong.
template <class Shape, int kTiles>
__device__ void add_share(BackwardMemory<Shape>& m, const TileSums (&dq)[kTiles], int group, int step) {
  m.turn_there[step % 2].wait(step / 2 % 2);
  const DqShare share = m.share[step % 2];
  float4* sums = share.sums + group * 8 * 128 + static_cast<int>(threadIdx.x) % 128;
  if (share.first) {
#pragma unroll
    for (int c = 0; c < kTiles; ++c)
      __stcg(sums + c * 128, float4{dq[c].at[0], dq[c].at[1], dq[c].at[2], dq[c].at[3]});
  } else {
#pragma unroll
    for (int c = 0; c < kTiles; ++c) add_at(sums + c * 128, dq[c]);
  }
  __syncwarp();
  if (threadIdx.x % 32 == 0) m.turn_over[group][step % 2].arrive();
}

// A warpgroup's half of a tile of dq, complete.
template <class Shape, int kTiles>
struct FinishedHalf {
  using T = typename Shape::T;
  int64_t number = -1;  // of the tile; -1: there is none
  TileSums dq[kTiles];

  __device__ void load(const BackwardArguments<T>& a, int64_t number_, int group, Shares shares) {
    number = number_;
    const float4* sums = a.dq_sums + number * (Shape::kQueries * Shape::kD / 4) + group * 8 * 128 +
                         static_cast<int>(threadIdx.x) % 128;
#pragma unroll
    for (int c = 0; c < kTiles; ++c) {
      const float4 early = shares.early > 0 ? __ldcg(sums + c * 128) : float4{};  // else nobody sees any key
      const float4 late = shares.late > 0 ? __ldcg(sums + a.late_sums + c * 128) : float4{};
      dq[c] = {early.x + late.x, early.y + late.y, early.z + late.z, early.w + late.w};
    }
  }

  // False, and nothing written, where a warp has something that is not a number.
  __device__ bool write(const BackwardArguments<T>& a, int group) const {
    if (number < 0) return true;
    if (!all_finite(dq)) return false;
    const Sizes& z = a.z;
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
    const int tile = static_cast<int>(number % a.lots.tiles), head = static_cast<int>(number / a.lots.tiles);
    const int b = head / z.H, h = head % z.H;
    const int first = tile * Shape::kQueries + (Shape::kSplitsQueries ? group * 64 : 0) + warp * 16;
    const int column = Shape::kSplitsQueries ? 0 : group * 64;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = first + lane / 4 + half * 8;
      if (i >= z.Tq) continue;
      T* row = a.dq.at(b, h, z.D, i);
#pragma unroll
      for (int c = 0; c < kTiles; ++c) {
        const int channel = column + c * 8 + lane % 4 * 2;
        if (channel >= z.D) continue;
        float x = dq[c].at[2 * half] * z.scale, y = dq[c].at[2 * half + 1] * z.scale;
        if (a.dq.accumulate) {
          x += static_cast<float>(row[channel]);
          y += static_cast<float>(row[channel + 1]);
        }
        *reinterpret_cast<uint32_t*>(row + channel) = two_of(x, y, T{});
      }
    }
    return true;
  }

  // What write() left: row by row.
  __device__ void write_carefully(const BackwardArguments<T>& a, int group) const {
    if (all_finite(dq)) return;
    const Sizes& z = a.z;
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const int tile = static_cast<int>(number % a.lots.tiles), head = static_cast<int>(number / a.lots.tiles);
    const int b = head / z.H, h = head % z.H;
    const int first = tile * Shape::kQueries + (Shape::kSplitsQueries ? group * 64 : 0) + warp * 16;
    const int column = Shape::kSplitsQueries ? 0 : group * 64, end = min(z.D, column + kTiles * 8);
    for (int i = first; i < first + 16 && i < z.Tq; ++i) {
      a.careful().template of_query<Shape::kD>(b, h, i).put(a.dq.at(b, h, z.D, i), column, end, z.scale,
                                                            a.dq.accumulate);
    }
  }
};

// Calls f with the number of sums that a warpgroup has of a tile's half: the last channels may be fewer.
template <class Shape, class F>
__device__ void with_half(int group, F f) {
  constexpr int kD = Shape::kD;
  if (kD <= 64 || kD == 128 || group == 0) return f(std::integral_constant<int, 8>{});
  if constexpr (kD > 64 && kD < 128) f(std::integral_constant<int, (kD - 64) / 8>{});
}

template <class Shape, class F>
__device__ void for_finished_halves(const BackwardArguments<typename Shape::T>& a,
                                    const typename Shape::Lot& at, F f) {
  for (int h = at.hkv * a.z.group; h < (at.hkv + 1) * a.z.group; ++h) {
    at.for_finished_tiles(a.z, a.lots, [&](int tile) {
      f(tile_number(a.z, a.lots, at.b, h, tile), Shape::Lot::shares(a.z, a.lots, tile));
    });
  }
}

// The tiles that a block writes out when it is done with a head, for one warpgroup. First each thread waits
// for one flag: every round trip to memory is one that all wait for. False: something was not a number, and
// was left.
template <class Shape>
__device__ bool finish_head(const BackwardArguments<typename Shape::T>& a, const typename Shape::Lot& at,
                            int group) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
  int flag = 0;
  for_finished_halves<Shape>(a, at, [&](int64_t number, Shares shares) {
    const int* flags = a.turns + number * 4 + group;
    if (flag++ % 128 == thread) {
      while (turn_at(flags) != shares.early) __nanosleep(20);
    }
    if (shares.late > 0 && flag++ % 128 == thread) {
      while (turn_at(flags + 2) != shares.late) __nanosleep(20);
    }
  });
  __syncwarp();
  meet(2 + group, 128);
  bool finite = true;
  with_half<Shape>(group, [&](auto count) {
    for_finished_halves<Shape>(a, at, [&](int64_t number, Shares shares) {
      FinishedHalf<Shape, decltype(count)::value> half;
      half.load(a, number, group, shares);
      finite &= half.write(a, group);
    });
  });
  return finite;
}

// Where blocks do not: half a tile a block.
template <class Shape>
__global__ void __launch_bounds__(128)
    hopper_write_dq_kernel(const __grid_constant__ BackwardArguments<typename Shape::T> a) {
#ifdef KILN_HOPPER_CODE
  const int64_t number = blockIdx.x / 2;
  const int all = Shape::Lot::last_lot(a.z, static_cast<int>(number % a.lots.tiles)) + 1;
  const int group = static_cast<int>(blockIdx.x % 2);
  with_half<Shape>(group, [&](auto count) {
    FinishedHalf<Shape, decltype(count)::value> half;
    half.load(a, number, group, {all, 0});
    if (!half.write(a, group)) half.write_carefully(a, group);
  });
#endif
}

}  // namespace kiln::hopper
