// flash_hopper, backward: the producer. One thread of its warpgroup loads by TMA; two others store dq
// (dq_accumulate.cuh).
#pragma once

#include "ops/attention/hopper/backward_params.cuh"

namespace kiln::hopper {

// k of a key block, then q and dO (with lse and delta) of one query tile after the other, kStages ahead. v
// has no full barrier of its own: it is announced with the first dO. Each wait asks for the phase before the
// one the stage is about to have; without it TMA would overwrite what wgmma, or a warp, still reads.
template <BackwardBlockShape Shape>
__device__ void load_backward(const BackwardParams<typename Shape::T>& a, BackwardSmem<Shape>& m) {
  using KeyBlockT = typename Shape::KeyBlockT;
  const SeqlenInfo& z = a.seqlen(m);
  constexpr int kRowBytes = Shape::kQueries * static_cast<int>(sizeof(float));
  int step = 0;
  for (int s = 0;; ++s) {
    const KeyBlockT at(z, a.scheduler, m.number, s);
    if (!at.exists) return;
    const int key = at.j * Shape::kKeys, j0 = z.first_key + key;  // in the sequence, and of the tensors
    const int v_place = s % Shape::kVStages, v_phase = s / Shape::kVStages % 2;
    m.k_empty[s % 2].wait((s / 2 % 2) ^ 1);
    // A key block without steps loads no v, but its phase of v_empty must be seen too: a wait tells only odd
    // phases from even ones. And that before k is loaded: with k the consumers could finish this key block
    // and the next phase with it before this thread looks.
    if (at.steps(z) == 0) m.v_empty[v_place].wait(v_phase ^ 1);
    m.k_full[s % 2].arrive_expect_tx(m.k[0].kBytes);
    tma_load_tile(m.k[s % 2], a.k, at.hkv, j0, at.b, m.k_full[s % 2]);
    QueryTileIterator<KeyBlockT> walk(z, at);
    for (int n = 0, steps = at.steps(z); n < steps; ++n, ++step, walk.next(at)) {
      const int stage = step % Shape::kStages, phase = step / Shape::kStages % 2;
      const int i0 = walk.tile * Shape::kQueries;
      const int64_t row = static_cast<int64_t>(at.b * z.H + walk.h) * a.padded + z.first_stat + i0;
      m.q_empty[stage].wait(phase ^ 1);
      const int diagonal = z.causal ? i0 + z.ahead - key : Shape::kKeys;
      // Before the arrive, which shows it to whoever waits for q_full.
      m.border[stage] = {diagonal < Shape::kKeys - 1 || z.Tk - key < Shape::kKeys, diagonal, z.Tk - key};
      m.q_full[stage].arrive_expect_tx(m.q[0].kBytes + kRowBytes);
      tma_load_tile(m.q[stage], a.q, walk.h, z.first_query + i0, at.b, m.q_full[stage]);
      tma_load_bytes(m.lse2[stage], a.lse2 + row, kRowBytes, m.q_full[stage]);
      m.dout_empty[stage].wait(phase ^ 1);
      if (n == 0) m.v_empty[v_place].wait(v_phase ^ 1);
      m.dout_full[stage].arrive_expect_tx(m.dout[0].kBytes + kRowBytes + (n == 0 ? m.v[0].kBytes : 0));
      if (n == 0) tma_load_tile(m.v[v_place], a.v, at.hkv, j0, at.b, m.dout_full[stage]);
      tma_load_tile(m.dout[stage], a.dout, walk.h, z.first_query + i0, at.b, m.dout_full[stage]);
      tma_load_bytes(m.delta[stage], a.delta + row, kRowBytes, m.dout_full[stage]);
    }
  }
}

}  // namespace kiln::hopper
