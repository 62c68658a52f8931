// How the blocks of flash_hopper's backward add up dq: in fp32, each share at its turn (cuda_hopper_walk.h),
// and so always to the same bits.
#pragma once

#include "ops/attention/cuda_hopper_backward_memory.cuh"
#include "ops/cuda_device/early.cuh"

namespace kiln::hopper {

__device__ inline int turn_at(const int* flag) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}
// Among all tiles of queries.
__device__ inline int64_t tile_number(const Sizes& z, const Lots& l, int b, int h, int tile) {
  return static_cast<int64_t>(b * z.H + h) * l.tiles + z.first_tile + tile;
}

// Calls f(step, turn, number of the tile) for all steps of the block.
template <class Shape, class F>
__device__ void for_turns(const BackwardArguments<typename Shape::T>& a, const BackwardMemory<Shape>& m,
                          F f) {
  using Lot = typename Shape::Lot;
  const Sizes& z = a.sizes(m);
  int step = 0;
  for (int s = 0;; ++s) {
    const Lot at(z, a.lots, m.number, s);
    if (!at.exists) return;
    QueryWalk<Lot> walk(z, at);
    for (int n = at.steps(z); n > 0; --n, ++step, walk.next(at))
      f(step, at.turn(z, a.lots, walk.tile), tile_number(z, a.lots, at.b, walk.h, walk.tile));
  }
}

// Sums of eight columns that a warpgroup has of a step's dq; the last channels may be fewer.
template <class Shape>
__device__ constexpr int tiles_of(int group) {
  return Shape::kD <= 64 || Shape::kD == 128 || group == 0 ? 8 : (Shape::kD - 64) / 8;
}

// A warpgroup's sums of one step, to where the senders find them.
template <class Shape, int kTiles>
__device__ void hand_over_share(BackwardMemory<Shape>& m, const TileSums (&dq)[kTiles], int group, int step) {
  if (step > 0) m.dq_free[group][(step - 1) % 2].wait((step - 1) / 2 % 2);
  float4* to = m.dq[group] + threadIdx.x % 128;
#pragma unroll
  for (int c = 0; c < kTiles; ++c) to[c * 128] = {dq[c].at[0], dq[c].at[1], dq[c].at[2], dq[c].at[3]};
  show_to_products();
  __syncwarp();
  if (threadIdx.x % 32 == 0) m.dq_there[group][step % 2].arrive();
}

// A thread waits for the block's turn at a tile, has the copy engine add the shares, and gives the turn on
// when they are in memory: round trips that together are longer than a step, so there are two such threads,
// for even and odd steps.
template <class Shape>
__device__ void send_shares(const BackwardArguments<typename Shape::T>& a, BackwardMemory<Shape>& m,
                            int odd) {
  constexpr int kTileSums = Shape::kQueries * Shape::kD / 4;
  for_turns(a, m, [&](int step, const Turn& mine, int64_t number) {
    if (step % 2 != odd) return;
    int* flag = a.turns + number * 2 + (mine.late ? 1 : 0);
    float4* to = a.dq_sums + (mine.late && !a.atomic ? a.late_sums : 0) + number * kTileSums;
    if (mine.turn > 0 && !a.atomic) {
      while (turn_at(flag) != mine.turn) __nanosleep(20);
      show_to_copies();
    }
#pragma unroll
    for (int group = 0; group < 2; ++group) {
      constexpr int kBytes = 128 * 16;
      m.dq_there[group][odd].wait(step / 2 % 2);
      if (mine.turn == 0 && !a.atomic) {
        store_bytes(to + group * 8 * 128, m.dq[group], tiles_of<Shape>(group) * kBytes);
      } else {
        add_floats(to + group * 8 * 128, m.dq[group], tiles_of<Shape>(group) * kBytes);
      }
      close_stores();
    }
    wait_for_stores<1>();
    m.dq_free[0][odd].arrive();
    wait_for_stores<0>();
    m.dq_free[1][odd].arrive();
    if (a.atomic) return;
    wait_for_written_stores();
    __threadfence();
    asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(flag), "r"(mine.turn + 1) : "memory");
  });
  wait_for_written_stores();
}

// A tile of queries, and where its sums lie.
struct TilePlace {
  int b, h, tile;
  int64_t number;  // among all

  __device__ TilePlace(const Sizes& z, const Lots& l, int b, int h, int tile)
      : b(b), h(h), tile(tile), number(tile_number(z, l, b, h, tile)) {}
};

// A warpgroup's half of a tile of dq, complete. What is done once a head is done from instructions that no
// cache has yet, which takes longer than the work: the usual way is short, and the others lie aside.
template <class Shape, int kTiles>
struct FinishedHalf {
  using T = typename Shape::T;
  TilePlace at;
  int first, column;  // the warp's first query in its sequence, and the first channel
  TileSums dq[kTiles];

  __device__ FinishedHalf(const BackwardArguments<T>& a, const TilePlace& at, int group, Shares shares)
      : at(at),
        first(at.tile * Shape::kQueries + (Shape::kSplitsQueries ? group * 64 : 0) +
              static_cast<int>(threadIdx.x) / 32 % 4 * 16),
        column(Shape::kSplitsQueries ? 0 : group * 64) {
    const float4* sums = a.dq_sums + at.number * (Shape::kQueries * Shape::kD / 4) + group * 8 * 128 +
                         static_cast<int>(threadIdx.x) % 128;
#pragma unroll
    for (int c = 0; c < kTiles; ++c) {
      const float4 early = shares.early > 0 ? __ldcg(sums + c * 128) : float4{};  // else nobody sees any key
      const float4 late = shares.late > 0 ? __ldcg(sums + a.late_sums + c * 128) : float4{};
      dq[c] = {early.x + late.x, early.y + late.y, early.z + late.z, early.w + late.w};
    }
  }

  // False, and nothing written, where a warp has something that is not a number.
  __device__ bool write(const BackwardArguments<T>& a, const Sizes& z) const {
    if (!all_finite(dq)) return false;
    const int lane = static_cast<int>(threadIdx.x) % 32, i = first + lane / 4;
    const int channel = column + lane % 4 * 2, stride = 8 * static_cast<int>(a.dq.row_stride);
    T* row = a.dq.at(at.b, at.h, z.D, z.first_query + i) + channel;
    if (column + kTiles * 8 <= z.D && !a.dq.accumulate) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (i + half * 8 >= z.Tq) break;
#pragma unroll
        for (int c = 0; c < kTiles; ++c) {
          *reinterpret_cast<uint32_t*>(row + half * stride + c * 8) =
              two_of(dq[c].at[2 * half] * z.scale, dq[c].at[2 * half + 1] * z.scale, T{});
        }
      }
      return true;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (i + half * 8 >= z.Tq) break;
#pragma unroll
      for (int c = 0; c < kTiles; ++c) {
        if (channel + c * 8 >= z.D) break;
        T* two = row + half * stride + c * 8;
        put_grad(two[0], dq[c].at[2 * half] * z.scale, a.dq.accumulate);
        put_grad(two[1], dq[c].at[2 * half + 1] * z.scale, a.dq.accumulate);
      }
    }
    return true;
  }

  // What write() left: row by row.
  __device__ void write_carefully(const BackwardArguments<T>& a, const Sizes& z) const {
    if (all_finite(dq)) return;
    const int end = min(z.D, column + kTiles * 8);
    for (int i = first; i < first + 16 && i < z.Tq; ++i) {
      a.careful(z)
          .template of_query<Shape::kD>(at.b, at.h, i)
          .put(a.dq.at(at.b, at.h, z.D, z.first_query + i), column, end, z.scale, a.dq.accumulate);
    }
  }
};

// Calls f with tiles_of(group), as a constant.
template <class Shape, class F>
__device__ void with_half(int group, F f) {
  if (tiles_of<Shape>(1) == 8 || group == 0) return f(std::integral_constant<int, 8>{});
  if constexpr (tiles_of<Shape>(1) != 8) f(std::integral_constant<int, tiles_of<Shape>(1)>{});
}

template <class Shape, class F>
__device__ void for_finished_halves(const BackwardArguments<typename Shape::T>& a,
                                    const typename Shape::Lot& at, F f) {
  for (int h = at.hkv * a.z.group; h < (at.hkv + 1) * a.z.group; ++h) {
    at.for_finished_tiles(a.z, a.lots, [&](int tile) {
      f(TilePlace(a.z, a.lots, at.b, h, tile), Shape::Lot::finished_shares(a.z, a.lots, tile));
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
  for_finished_halves<Shape>(a, at, [&](const TilePlace& tile, Shares shares) {
    const int* flags = a.turns + tile.number * 2;
    if (flag++ % 128 == thread) {
      while (turn_at(flags) != shares.early) __nanosleep(20);
    }
    if (shares.late > 0 && flag++ % 128 == thread) {
      while (turn_at(flags + 1) != shares.late) __nanosleep(20);
    }
  });
  __syncwarp();
  meet(2 + group, 128);
  bool finite = true;
  with_half<Shape>(group, [&](auto count) {
    for_finished_halves<Shape>(a, at, [&](const TilePlace& tile, Shares shares) {
      finite &= FinishedHalf<Shape, decltype(count)::value>(a, tile, group, shares).write(a, a.z);
    });
  });
  return finite;
}

// Where blocks do not: half a tile a block.
template <class Shape>
__global__ void __launch_bounds__(128)
    hopper_write_dq_kernel(const __grid_constant__ BackwardArguments<typename Shape::T> a) {
#ifdef KILN_HOPPER_CODE
  wait_for_kernel_before();
  const auto number = static_cast<int>(blockIdx.x / 2);
  const int place = number % a.lots.tiles, head = number / a.lots.tiles;
  Sizes z = a.z;
  if (a.p.varied) z.enter_tile(a.p, a.sequences, Shape::kKeys, Shape::kQueries, place);
  const int tile = place - z.first_tile;
  if (tile < 0 || tile * Shape::kQueries >= z.Tq) return;  // nobody's place
  Shares shares = Shape::Lot::shares(z, a.lots, tile);
  if (a.atomic) shares = {shares.early + shares.late, 0};
  const int group = static_cast<int>(blockIdx.x % 2);
  with_half<Shape>(group, [&](auto count) {
    const TilePlace at(z, a.lots, head / z.H, head % z.H, tile);
    const FinishedHalf<Shape, decltype(count)::value> half(a, at, group, shares);
    if (!half.write(a, z)) half.write_carefully(a, z);
  });
#endif
}

}  // namespace kiln::hopper
