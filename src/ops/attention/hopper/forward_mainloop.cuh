// flash_hopper, forward: the main loop. A block has up to three consumer warpgroups of 64 queries each, and a
// producer warpgroup whose one thread loads tiles of keys and values by TMA, kStages ahead (hopper_table.h).
// A consumer issues the scores of the next tile and the output (probabilities times values) of the last one
// together, and computes the new probabilities while the output still runs; meanwhile the other warpgroups'
// wgmmas fill the tensor cores. Key tiles go from the last that is seen to the first, so the masked ones come
// at the start. CTAs are persistent: there are as many as the GPU holds at once, the key tiles of all work
// tiles of a CTA (forward_tile_scheduler.h) are one pipeline, and a work tile's first scores go with the last
// output of the one before.
//
//   buffer   stages    written by                   full when             empty when
//   q        kQStages  TMA; o, by the consumers     TMA's bytes are in    TMA has read each warpgroup's o
//   k, v     kStages   TMA                          TMA's bytes are in    each warp has waited for the wgmmas
//                                                                         that read them
//
// Roofline: 4 B H D operations per seen pair on the tensor cores; and an exponential per pair, of which an SM
// makes 16 a cycle: for heads of 64 that takes as long as the matmuls.
#pragma once

#include "ops/attention/hopper/forward_epilogue.cuh"
#include "ops/attention/hopper/mask.cuh"

namespace kiln::hopper {

// The producer: one thread. Each wait asks for the phase before the one the stage is about to have, so the
// first time round it returns at once; without it TMA would overwrite a tile that wgmma still reads.
template <ForwardBlockShape Shape>
__device__ void load_forward(const ForwardParams<typename Shape::T>& a, ForwardSmem<Shape>& m) {
  int loaded = 0;  // tiles of keys
  for (int r = 0; a.template has_tile<Shape>(r); ++r) {
    const auto at = a.template work_tile<Shape>(m, r);
    const int place = r % Shape::kQStages;
    m.q_empty[place].wait((r / Shape::kQStages % 2) ^ 1);
    m.work[place] = at;  // before the arrive, which shows it to whoever waits for q_full
    m.q_full[place].arrive_expect_tx(m.q[0].kBytes);
    tma_load_tile(m.q[place], a.q, at.h, a.seqlen(m).first_query + at.first, at.b, m.q_full[place]);
    for (int tile = at.steps - 1; tile >= 0; --tile, ++loaded) {
      const int stage = loaded % Shape::kStages, phase = loaded / Shape::kStages % 2;
      m.k_empty[stage].wait(phase ^ 1);
      m.k_full[stage].arrive_expect_tx(m.k[stage].kBytes);
      tma_load_tile(m.k[stage], a.k, at.hkv, a.seqlen(m).first_key + tile * Shape::kKeys, at.b,
                    m.k_full[stage]);
      m.v_empty[stage].wait(phase ^ 1);
      m.v_full[stage].arrive_expect_tx(m.v[stage].kBytes);
      tma_load_tile(m.v[stage], a.v, at.hkv, a.seqlen(m).first_key + tile * Shape::kKeys, at.b,
                    m.v_full[stage]);
    }
  }
}

// A consumer warpgroup.
template <ForwardBlockShape Shape>
__device__ void mma_forward(const ForwardParams<typename Shape::T>& a, ForwardSmem<Shape>& m) {
  using T = typename Shape::T;
  constexpr int kD = Shape::kD, kKeys = Shape::kKeys, kStages = Shape::kStages, kQStages = Shape::kQStages;
  const int group = static_cast<int>(threadIdx.x) / 128 - 1;
  const int lane = static_cast<int>(threadIdx.x) % 32;

  FragAcc o[kD / 8], s[kKeys / 8];
  FragA probs[kKeys / 16];
  OnlineSoftmax softmax;
  float keep[2];
  int r = 0, taken = 0;     // work tiles and key tiles begun before
  int whole = 0, tile = 0;  // of the work tile: its unmasked key tiles, and the one at hand
  const auto begin_tile = [&] {
    m.q_full[r % kQStages].wait(r / kQStages % 2);  // and with q, m.work
    whole = m.work[r % kQStages].whole;
    tile = m.work[r % kQStages].steps - 1;
  };
  const auto issue_scores = [&] {
    m.k_full[taken % kStages].wait(taken / kStages % 2);
    const uint64_t q = m.q[r % kQStages].k_major_from(group * 64), k = m.k[taken % kStages].k_major_from(0);
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < kD / 16; ++c)
      wgmma_ss<T>(c, s, q + m.q[0].k_major_step(c), k + m.k[0].k_major_step(c));
    wgmma_commit();
  };
  bool begun = false;  // o of this work tile: its first wgmma overwrites what the last work tile left
  const auto issue_output = [&](int tile) {
    m.v_full[tile % kStages].wait(tile / kStages % 2);
    const uint64_t v = m.v[tile % kStages].mn_major_from(0);
    wgmma_fence();  // probs and o were written by ordinary code
#pragma unroll
    for (int c = 0; c < kKeys / 16; ++c)
      wgmma_rs<T, true>(o, probs[c], v + m.v[0].mn_major_step(c), c > 0 || begun ? 1 : 0);
    wgmma_commit();
    begun = true;
  };
  const auto softmax_scores = [&] {
    fence_operands(s);
    if (lane == 0) m.k_empty[taken % kStages].arrive();  // the scores are done, and nothing else reads k
    if (tile >= whole) {
      const int first =
          m.work[r % kQStages].first + group * 64 + static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4;
      const int limit[2] = {a.seqlen(m).visible(first) - tile * kKeys,
                            a.seqlen(m).visible(first + 8) - tile * kKeys};
      apply_mask(s, limit);
    }
    softmax.update(s, a.z.scale_log2, keep);
  };
  const auto finish_output = [&](int tile) {
    wgmma_wait<0>();
    fence_operands(o);
    if (lane == 0) m.v_empty[tile % kStages].arrive();
  };
  // Not before finish_output: until then wgmma reads the probabilities of the tile before from these
  // registers.
  const auto convert_probs = [&] {
#pragma unroll
    for (int c = 0; c < kKeys / 16; ++c) probs[c] = flash::as_a<T>(s[2 * c], s[2 * c + 1]);
  };
  // o of round `done` leaves through the memory of its q. By the thread that stored it: when TMA has read it,
  // the producer may load the next q there.
  bool leaving = false;
  const auto release_q = [&](int done) {
    if (!leaving) return;
    leaving = false;
    if (threadIdx.x % 128 != 0) return;
    tma_store_wait_read();
    m.q_empty[done % kQStages].arrive();
  };

  begin_tile();
  issue_scores();
  wgmma_wait<0>();
  softmax_scores();
  convert_probs();
  bool more = tile > 0 || a.template has_tile<Shape>(1);
  // Here `probs` are those of key tile `taken`, whose output is not issued yet; and k of that tile is
  // released.
  while (more) {
    const bool ends = tile == 0;  // the next work tile's first scores go with this one's last output
    const OnlineSoftmax done = softmax;
    ++taken;
    --tile;
    if (ends) {
      // First, or with two stages of q this would wait for ever: the next q comes where the last o leaves.
      release_q(r - 1);
      softmax = {};
      ++r;
      begin_tile();
    }
    issue_scores();
    issue_output(taken - 1);
    more = tile > 0 || a.template has_tile<Shape>(r + 1);
    if (!ends) release_q(r - 1);  // while the tensor cores work
    wgmma_wait<1>();              // the scores; the output still runs under the softmax
    softmax_scores();
    finish_output(taken - 1);
    convert_probs();
    if (ends) {
      epilogue_forward<Shape>(a, m, r - 1, done, o);
      leaving = true;
      begun = false;
    }
    // What is summed so far, to the new maximum. Where a work tile ended o is dead, and this does no harm.
#pragma unroll
    for (int c = 0; c < kD / 8; ++c) {
#pragma unroll
      for (int e = 0; e < 4; ++e) o[c].at[e] *= keep[e / 2];
    }
  }
  issue_output(taken);
  finish_output(taken);
  epilogue_forward<Shape>(a, m, r, softmax, o);
}

}  // namespace kiln::hopper
