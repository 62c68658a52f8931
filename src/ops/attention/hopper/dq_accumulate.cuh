// How the CTAs of flash_hopper's backward add up dq: in fp32 in global memory (L2), each contribution at its
// turn of the dQ semaphore, and so always to the same bits.
//
// A consumer warpgroup leaves its dq of a step in shared memory (stage_dq) and goes on; two threads of the
// producer warpgroup wait for the turn, add by TMA (cp.reduce.async.bulk) and release the semaphore
// (store_dq).
#pragma once

#include "ops/attention/dq_semaphore.cuh"
#include "ops/attention/hopper/backward_params.cuh"

namespace kiln::hopper {

// Calls f(step, turn, index of the dq tile) for all steps of the CTA: those that the consumers make.
template <BackwardBlockShape Shape, class F>
__device__ void for_each_dq_step(const BackwardParams<typename Shape::T>& a, const BackwardSmem<Shape>& m,
                                 F f) {
  using KeyBlockT = typename Shape::KeyBlockT;
  const SeqlenInfo& z = a.seqlen(m);
  int step = 0;
  for (int s = 0;; ++s) {
    const KeyBlockT at(z, a.scheduler, m.number, s);
    if (!at.exists) return;
    QueryTileIterator<KeyBlockT> walk(z, at);
    for (int n = at.steps(z); n > 0; --n, ++step, walk.next(at))
      f(step, at.dq_turn(z, a.scheduler, walk.tile), dq_tile_index(z, a.scheduler, at.b, walk.h, walk.tile));
  }
}

// A warpgroup's dq of one step, to where store_dq finds it. There is one place for each warpgroup: TMA must
// have read the step before from it.
template <BackwardBlockShape Shape, int kTiles>
__device__ void stage_dq(BackwardSmem<Shape>& m, const FragAcc (&dq)[kTiles], int group, int step) {
  if (step > 0) m.dq_empty[group][(step - 1) % 2].wait((step - 1) / 2 % 2);
  float4* to = m.dq[group] + threadIdx.x % 128;
#pragma unroll
  for (int c = 0; c < kTiles; ++c) to[c * 128] = {dq[c].at[0], dq[c].at[1], dq[c].at[2], dq[c].at[3]};
  fence_proxy_async();  // each lane's own writes, for TMA; then the warp's arrive
  __syncwarp();
  if (threadIdx.x % 32 == 0) m.dq_full[group][step % 2].arrive();
}

// By one thread for even steps and one for odd ones. Waiting for the turn, having dq added, and releasing are
// round trips to L2 that together are longer than a step.
template <BackwardBlockShape Shape>
__device__ void store_dq(const BackwardParams<typename Shape::T>& a, BackwardSmem<Shape>& m, int odd) {
  constexpr int kTileSums = Shape::kQueries * Shape::kD / 4;
  for_each_dq_step(a, m, [&](int step, const DqTurn& mine, int64_t number) {
    if (step % 2 != odd) return;
    int* flag = a.dq_semaphore + number * 2 + (mine.late ? 1 : 0);
    float4* to = a.dq_accum + (mine.late && !a.atomic ? a.late_offset : 0) + number * kTileSums;
    if (mine.turn > 0 && !a.atomic) {
      semaphore_wait(flag, mine.turn);
      fence_proxy_async_global();  // the acquire was an ordinary load; TMA's adds must come after it too
    }
#pragma unroll
    for (int group = 0; group < 2; ++group) {
      constexpr int kBytes = 128 * 16;
      m.dq_full[group][odd].wait(step / 2 % 2);
      if (mine.turn == 0 && !a.atomic) {  // the first stores: nobody has set the sums to zero
        tma_store_bytes(to + group * 8 * 128, m.dq[group], dq_fragments<Shape>(group) * kBytes);
      } else {
        tma_reduce_add_f32(to + group * 8 * 128, m.dq[group], dq_fragments<Shape>(group) * kBytes);
      }
      tma_store_commit();
    }
    tma_store_wait_read<1>();
    m.dq_empty[0][odd].arrive();
    tma_store_wait_read<0>();
    m.dq_empty[1][odd].arrive();
    if (a.atomic) return;
    // Not when TMA has read the staging memory but when the sums are in L2 may the next CTA add to them.
    tma_store_wait_complete();
    __threadfence();
    semaphore_release(flag, mine.turn + 1);
  });
  tma_store_wait_complete();
}

}  // namespace kiln::hopper
