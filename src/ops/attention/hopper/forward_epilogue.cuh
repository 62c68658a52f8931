// The epilogue of flash_hopper's forward: o and lse, through shared memory and TMA; row by row where that
// would reach into the next sequence (varlen), or where something was not finite.
#pragma once

#include "ops/attention/hopper/forward_params.cuh"
#include "ops/attention/hopper/softmax.cuh"

namespace kiln::hopper {

// Whether a warpgroup's rows are also those of the next sequence, which TMA would overwrite.
template <ForwardBlockShape Shape>
__device__ bool crosses_sequence_end(const ForwardParams<typename Shape::T>& a, const ForwardSmem<Shape>& m,
                                     const WorkTile<Shape::kQueries, Shape::kKeys>& at, int group) {
  return Shape::kVarlen && at.first + group * 64 + 64 > a.seqlen(m).Tq;
}

// Then, at the end, they are stored row by row from where epilogue_forward left them. A warp reads its own
// rows alone, so a __syncwarp is enough.
template <ForwardBlockShape Shape>
__device__ void store_row_by_row(const ForwardParams<typename Shape::T>& a, const ForwardSmem<Shape>& m) {
  constexpr int kVectors = Shape::kD / 8;  // of 16 bytes, in a row
  const SeqlenInfo& z = a.seqlen(m);
  const auto at = a.template work_tile<Shape>(m, 0);
  const int warp = static_cast<int>(threadIdx.x) / 32 - 4;
  if (!crosses_sequence_end<Shape>(a, m, at, warp / 4)) return;
  __syncwarp();
  for (int n = static_cast<int>(threadIdx.x) % 32; n < 16 * kVectors; n += 32) {
    const int row = warp * 16 + n / kVectors, i = at.first + row, c = n % kVectors * 8;
    if (i < z.Tq && c < z.D)
      store_pack(a.o_rows.at(at.b, at.h, z.D, z.first_query + i) + c, load_pack(m.q[0].at(row, c)));
  }
}

// o and lse of round r's work tile, through the memory of its q. A warp overwrites the 16 rows of q that were
// its own left operand, and it has waited for the scores that read them.
template <ForwardBlockShape Shape>
__device__ void epilogue_forward(const ForwardParams<typename Shape::T>& a, ForwardSmem<Shape>& m, int r,
                                 const OnlineSoftmax& softmax, FragAcc (&o)[Shape::kD / 8]) {
  using T = typename Shape::T;
  const AttentionProblem& p = a.p;
  const auto at = m.work[r % Shape::kQStages];
  const int group = static_cast<int>(threadIdx.x) / 128 - 1, warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, col = lane % 4 * 2;
  const int own = group * 64 + warp * 16;
  auto& tile = m.q[r % Shape::kQStages];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = softmax.sum[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const float factor = 1.0f / sum;  // NaN goes through
    const int i = at.first + own + g + half * 8;
    if (col == 0 && i < a.seqlen(m).Tq)
      a.lse[a.stat(a.seqlen(m), at.b, at.h, i)] =
          sum == 0 ? -INFINITY : softmax.top[half] * p.scale + logf(sum);
#pragma unroll
    for (int c = 0; c < Shape::kD / 8; ++c) {
      // A query that sees no key has zeros, also where a masked value made its sums NaN.
      o[c].at[2 * half] = sum == 0 ? 0.0f : o[c].at[2 * half] * factor;
      o[c].at[2 * half + 1] = sum == 0 ? 0.0f : o[c].at[2 * half + 1] * factor;
      *reinterpret_cast<uint32_t*>(tile.at(own + g + half * 8, c * 8 + col)) =
          two_of(o[c].at[2 * half], o[c].at[2 * half + 1], T{});
    }
  }
  if (!all_finite(o) && lane == 0) m.non_finite[own / 16].add(r);
  if (crosses_sequence_end<Shape>(a, m, at, group)) return;
  // TMA reads through the async proxy what these threads wrote through the generic one: each fences its
  // writes, and the barrier tells the one thread that starts the store that all have.
  fence_proxy_async();
  named_barrier_sync(1 + group, 128);
  if (threadIdx.x % 128 == 0) {
    tma_store_rows(a.o, tile, group * 64, at.h, a.seqlen(m).first_query + at.first + group * 64, at.b);
    tma_store_commit();
  }
}

// The non-finite slow path, at the end, for the rows of a warp that are not finite. Not where they were
// marked: the registers this takes the matmuls would miss.
template <ForwardBlockShape Shape>
__device__ void redo_non_finite(const ForwardParams<typename Shape::T>& a, ForwardSmem<Shape>& m) {
  using T = typename Shape::T;
  const AttentionProblem& p = a.p;
  const int warp = static_cast<int>(threadIdx.x) / 32 - 4;
  // The rows are read back, and some written again: after TMA's stores are in memory, for the whole
  // warpgroup.
  if (threadIdx.x % 128 == 0) tma_store_wait_complete();
  named_barrier_sync(1 + warp / 4, 128);
  for (int r = m.non_finite[warp].first; r <= m.non_finite[warp].last; ++r) {
    const auto at = a.template work_tile<Shape>(m, r);
    for (int i = at.first + warp * 16; i < at.first + warp * 16 + 16 && i < a.seqlen(m).Tq; ++i) {
      const float lse = a.lse[a.stat(a.seqlen(m), at.b, at.h, i)];
      T* row = a.o_rows.at(at.b, at.h, static_cast<int>(p.D), a.seqlen(m).first_query + i);
      if (lse == -INFINITY || LaneRow<Shape::kD>::of(row, static_cast<int>(p.D)).finite()) continue;
      non_finite_output<T, Shape::kD>(a.seqlen(m), a.q_rows, a.k_rows, a.v_rows, at.b, at.h, i, lse)
          .put(row, 0, static_cast<int>(p.D), 1.0f, false);
    }
  }
}

}  // namespace kiln::hopper
