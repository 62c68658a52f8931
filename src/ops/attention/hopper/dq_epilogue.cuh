// dq of flash_hopper's backward, from its fp32 sums to the tensor: by the CTAs that are done with a head, or
// by a kernel of its own (backward_tile_scheduler.h says which).
#pragma once

#include "ops/attention/dq_semaphore.cuh"
#include "ops/attention/hopper/backward_params.cuh"
#include "ops/cuda_device/pdl.cuh"

namespace kiln::hopper {

// A query tile, and where its sums of dq lie.
struct DqTile {
  int b, h, tile;
  int64_t number;  // among all

  __device__ DqTile(const SeqlenInfo& z, const BackwardTileScheduler& l, int b, int h, int tile)
      : b(b), h(h), tile(tile), number(dq_tile_index(z, l, b, h, tile)) {}
};

// A warpgroup's half of a tile of dq, complete. This runs once for a head, from instructions that no cache
// has yet, and fetching those takes longer than the work: so the usual way is short, and the others lie
// aside.
template <BackwardBlockShape Shape, int kTiles>
struct DqHalfTile {
  using T = typename Shape::T;
  DqTile at;
  int first, column;  // the warp's first query in its sequence, and the first channel
  FragAcc dq[kTiles];

  __device__ DqHalfTile(const BackwardParams<T>& a, const DqTile& at, int group, DqCounts counts)
      : at(at),
        first(at.tile * Shape::kQueries + (Shape::kSplitsQueries ? group * 64 : 0) +
              static_cast<int>(threadIdx.x) / 32 % 4 * 16),
        column(Shape::kSplitsQueries ? 0 : group * 64) {
    const float4* sums = a.dq_accum + at.number * (Shape::kQueries * Shape::kD / 4) + group * 8 * 128 +
                         static_cast<int>(threadIdx.x) % 128;
#pragma unroll
    for (int c = 0; c < kTiles; ++c) {
      const float4 early = counts.early > 0 ? __ldcg(sums + c * 128) : float4{};  // else nobody sees any key
      const float4 late = counts.late > 0 ? __ldcg(sums + a.late_offset + c * 128) : float4{};
      dq[c] = {early.x + late.x, early.y + late.y, early.z + late.z, early.w + late.w};
    }
  }

  // False, and nothing written, where a warp has something that is not finite.
  __device__ bool write(const BackwardParams<T>& a, const SeqlenInfo& z) const {
    if (!all_finite(dq)) return false;
    const int lane = static_cast<int>(threadIdx.x) % 32, i = first + lane / 4;
    const int channel = column + lane % 4 * 2;
    const int64_t stride = 8 * a.dq.row_stride;
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

  // The non-finite slow path, for what write() left: row by row.
  __device__ void write_non_finite(const BackwardParams<T>& a, const SeqlenInfo& z) const {
    if (all_finite(dq)) return;
    const int end = min(z.D, column + kTiles * 8);
    for (int i = first; i < first + 16 && i < z.Tq; ++i) {
      a.non_finite(z)
          .template of_query<Shape::kD>(at.b, at.h, i)
          .put(a.dq.at(at.b, at.h, z.D, z.first_query + i), column, end, z.scale, a.dq.accumulate);
    }
  }
};

template <BackwardBlockShape Shape, class F>
__device__ void for_each_written_tile(const BackwardParams<typename Shape::T>& a,
                                      const typename Shape::KeyBlockT& at, F f) {
  for (int h = at.hkv * a.z.group; h < (at.hkv + 1) * a.z.group; ++h) {
    at.for_written_tiles(a.z, a.scheduler, [&](int tile) {
      f(DqTile(a.z, a.scheduler, at.b, h, tile), Shape::KeyBlockT::written_counts(a.z, a.scheduler, tile));
    });
  }
}

// The dq tiles that a CTA writes out when it is done with a head, for one warpgroup. First each thread waits
// for one semaphore, so that the round trips to L2 are made side by side; the barrier then hands what each
// acquired to all. The sums are read past L1 (ldcg), which may have older ones. False: something was not
// finite, and was left.
template <BackwardBlockShape Shape>
__device__ bool write_dq_of_head(const BackwardParams<typename Shape::T>& a,
                                 const typename Shape::KeyBlockT& at, int group) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
  int flag = 0;
  for_each_written_tile<Shape>(a, at, [&](const DqTile& tile, DqCounts counts) {
    const int* flags = a.dq_semaphore + tile.number * 2;
    if (flag++ % 128 == thread) {
      semaphore_wait(flags, counts.early);
    }
    if (counts.late > 0 && flag++ % 128 == thread) {
      semaphore_wait(flags + 1, counts.late);
    }
  });
  __syncwarp();
  named_barrier_sync(2 + group, 128);
  bool finite = true;
  with_dq_fragments<Shape>(group, [&](auto count) {
    for_each_written_tile<Shape>(a, at, [&](const DqTile& tile, DqCounts counts) {
      finite &= DqHalfTile<Shape, decltype(count)::value>(a, tile, group, counts).write(a, a.z);
    });
  });
  return finite;
}

// Where CTAs do not: a kernel of its own, half a tile to a block.
template <BackwardBlockShape Shape>
__global__ void __launch_bounds__(128)
    hopper_write_dq_kernel(const __grid_constant__ BackwardParams<typename Shape::T> a) {
#ifdef KILN_HOPPER_CODE
  pdl_wait();
  const auto number = static_cast<int>(blockIdx.x / 2);
  const int place = number % a.scheduler.query_tiles, head = number / a.scheduler.query_tiles;
  SeqlenInfo z = a.z;
  if (a.p.varlen) z.enter_query_tile(a.p, a.sequences, Shape::kKeys, Shape::kQueries, place);
  const int tile = place - z.first_tile;
  if (tile < 0 || tile * Shape::kQueries >= z.Tq) return;  // nobody's place
  DqCounts counts = Shape::KeyBlockT::dq_counts(z, a.scheduler, tile);
  if (a.atomic) counts = {counts.early + counts.late, 0};
  const int group = static_cast<int>(blockIdx.x % 2);
  with_dq_fragments<Shape>(group, [&](auto count) {
    const DqTile at(z, a.scheduler, head / z.H, head % z.H, tile);
    const DqHalfTile<Shape, decltype(count)::value> half(a, at, group, counts);
    if (!half.write(a, z)) half.write_non_finite(a, z);
  });
#endif
}

}  // namespace kiln::hopper
