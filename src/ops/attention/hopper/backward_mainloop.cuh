// flash_hopper, backward: the main loop. One kernel makes dq, dk and dv with five matmuls. A block has 128
// keys, 64 to each of two consumer warpgroups, and walks over the queries that see them; a producer warpgroup
// loads. Everything is transposed (a warpgroup's 64 rows are keys), so that P^T and dS^T are in the registers
// from which wgmma takes its left operand; for dq, dS^T also goes through shared memory.
//
//   P = exp(scale q k^T - lse)   dP = dO v^T   dS = P (dP - delta)   delta = rowsum(dO o)
//   dv = P^T dO   dk = scale dS^T q   dq = scale sum over key blocks of dS k (dq_accumulate.cuh)
//
//   buffer     stages    written by              read by                 empty when
//   k          2         TMA, once a key block   S, dQ                   each warp has written its dk there
//   v          kVStages  TMA, once a key block   dP                      of two: each warp has written its dv
//                                                                        there; of one: its last dP is done
//   q, lse2    2         TMA, every step         S, dK; step 3           each warp's dK is done
//   dO, delta  2         TMA, every step         dP, dV; step 6          each warp's dV is done
//   ds         2         the consumers, step 6   dQ (of one v, then dv)  a named barrier, step 7
//   dq         1         the consumers, step 9   TMA, by store_dq        TMA has read it
//
// S, dP, dV, dQ and dK are the five groups of wgmmas of a step, in the order of their commits, which is the
// order in which wgmma_wait sees them end.
//
// Roofline: 10 B H D operations per seen pair. At 128 channels the compiler spills 4 bytes (12 in fp16)
// around the loop; forms of the mask without that were as fast to a percent (H200, 16 x 16 heads of 1024:
// 0.530 against 0.532 ms).
#pragma once

#include "ops/attention/hopper/backward_epilogue.cuh"
#include "ops/attention/hopper/dq_accumulate.cuh"

namespace kiln::hopper {

// From shared memory, where it is asked for: the compiler would read a tile's all at once.
__device__ inline float2 load_shared_x2(const float* p) {
  float2 two;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(two.x), "=f"(two.y)
               : "r"(shared_address(p))
               : "memory");
  return two;
}

// A consumer warpgroup's steps for the CTA's s-th key block; `step` steps were made before. Returns how many
// there are now.
template <BackwardBlockShape Shape>
__device__ int mma_backward(const BackwardParams<typename Shape::T>& a, BackwardSmem<Shape>& m, int s,
                            int step) {
  using T = typename Shape::T;
  constexpr int kD = Shape::kD, kQueries = Shape::kQueries, kKeys = Shape::kKeys;
  // Of lse and delta, read before they are needed: shared memory is busy with the wgmmas' operands. All of a
  // tile's would fill the registers.
  constexpr int kAhead = kD <= 64 ? 4 : 2;
  const SeqlenInfo& z = a.seqlen(m);
  const int group = static_cast<int>(threadIdx.x) / 128 - 1, warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, col = lane % 4 * 2;
  const int own = group * 64 + warp * 16;  // the warp's first key in the block
  const int end = step + m.key_block(z, a.scheduler, s).steps(z);

  FragAcc dk[kD / 8], dv[kD / 8];
  const int v_place = s % Shape::kVStages;
  m.k_full[s % 2].wait(s / 2 % 2);
  const auto& keys = m.k[s % 2];
  const uint64_t k = keys.k_major_from(group * 64), v = m.v[v_place].k_major_from(group * 64);
  // A key block that no query sees: v was not loaded, but its phase must end as any other.
  if (Shape::kVStages == 1 && step == end && lane == 0) m.v_empty[v_place].arrive();
  for (; step < end; ++step) {
    const int stage = step % Shape::kStages, phase = step / Shape::kStages % 2;
    FragAcc scores[kQueries / 8], dp[kQueries / 8];
    // 1. Group S: scores = k q^T. q_full also shows lse2 and the border.
    m.q_full[stage].wait(phase);
    const uint64_t q = m.q[stage].k_major_from(0), dout = m.dout[stage].k_major_from(0);
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < kD / 16; ++c)
      wgmma_ss<T>(c, scores, k + keys.k_major_step(c), q + m.q[0].k_major_step(c));
    wgmma_commit();
    // 2. Group dP: dp = v dO^T, behind the scores. dout_full also shows delta, and at a key block's first
    // step v.
    m.dout_full[stage].wait(phase);
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < kD / 16; ++c)
      wgmma_ss<T>(c, dp, v + m.v[0].k_major_step(c), dout + m.dout[0].k_major_step(c));
    wgmma_commit();

    // 3. Group S is done (dP may still run): probabilities, unmasked first.
    float2 early[kAhead];
#pragma unroll
    for (int t = 0; t < kAhead; ++t) early[t] = load_shared_x2(&m.lse2[stage][t * 8 + col]);
    wgmma_wait<1>();
    fence_operands(scores);
#pragma unroll
    for (int t = 0; t < kQueries / 8; ++t) {
      const float2 lse2 = early[t % kAhead];
      if (t + kAhead < kQueries / 8)
        early[t % kAhead] = load_shared_x2(&m.lse2[stage][(t + kAhead) * 8 + col]);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        scores[t].at[e] = exp2_fast(scores[t].at[e] * a.z.scale_log2 - (e % 2 == 0 ? lse2.x : lse2.y));
    }
    // Away from the border every query sees every key.
    const volatile auto& border = m.border[stage];
    if (border.crossed) {
      const int diagonal = border.diagonal, left = border.keys;
      apply_mask(scores, diagonal, left, own + g, col);
    }
    // 4. Group dV: dv += P^T dO, P^T from registers. These may be read but not written until the group is
    // done.
    FragA probs[kQueries / 16];
#pragma unroll
    for (int c = 0; c < kQueries / 16; ++c) probs[c] = flash::as_a<T>(scores[2 * c], scores[2 * c + 1]);
    const uint64_t dout_columns = m.dout[stage].mn_major_from(0);
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < kQueries / 16; ++c)
      wgmma_rs<T, true>(dv, probs[c], dout_columns + m.dout[0].mn_major_step(c));
    wgmma_commit();
#pragma unroll
    for (int t = 0; t < kAhead; ++t) early[t] = load_shared_x2(&m.delta[stage][t * 8 + col]);
    // 5. Group dP is done (dV may still run), and with it, at the last step, the last read of v. Where shared
    // memory holds one v the next may come now; dv then leaves through the memory of ds.
    wgmma_wait<1>();
    fence_operands(dp);
    if (Shape::kVStages == 1 && step + 1 == end && lane == 0) m.v_empty[v_place].arrive();
    // 6. dS = P (dP - delta), to registers for dk and to shared memory for dq.
    FragA ds_frag[kQueries / 16];
    auto& ds = m.ds[step % 2];
    const uint32_t ds_row = shared_address(ds.at(own + lane % 16, lane / 16 * 8));
#pragma unroll
    for (int c = 0; c < kQueries / 16; ++c) {
      // From the rounded probabilities: to keep the others would take the registers that are left.
      const Pack<T> probability{{probs[c].word[0], probs[c].word[1], probs[c].word[2], probs[c].word[3]}};
#pragma unroll
      for (int t = 2 * c; t < 2 * c + 2; ++t) {
        const float2 delta = early[t % kAhead];
        if (t + kAhead < kQueries / 8)
          early[t % kAhead] = load_shared_x2(&m.delta[stage][(t + kAhead) * 8 + col]);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          dp[t].at[e] = probability[t % 2 * 4 + e] * (dp[t].at[e] - (e % 2 == 0 ? delta.x : delta.y));
      }
      ds_frag[c] = flash::as_a<T>(dp[2 * c], dp[2 * c + 1]);
      stmatrix_x4(ds.advance(ds_row, c), ds_frag[c]);
    }

    // 7. dq needs dS of all 128 keys, from both warpgroups, and wgmma reads it through the async proxy: every
    // warp fences its writes, then meets the others. Without the fence wgmma could read what was there
    // before; without the barrier, rows that another warp has yet to write. The barrier also keeps ds from
    // being overwritten too early: whoever is here has waited for dq of the step before, so the buffer that
    // the next step writes is read by nobody.
    fence_proxy_async();
    named_barrier_sync(1, 256);
    // 8. Group dQ: this warpgroup's half of dq, of its queries or of its channels, over all keys; and behind
    // it group dK: dk += dS^T q, from registers.
    const auto finish_step = [&](auto& dq) {
      const uint64_t left = ds.mn_major_from(Shape::kSplitsQueries ? group : 0);
      const uint64_t right = keys.mn_major_from(Shape::kSplitsQueries ? 0 : group);
      wgmma_fence();
#pragma unroll
      for (int c = 0; c < kKeys / 16; ++c)
        wgmma_ss<T, true, true>(c, dq, left + ds.mn_major_step(c), right + keys.mn_major_step(c));
      wgmma_commit();
      const uint64_t q_columns = m.q[stage].mn_major_from(0);
      wgmma_fence();
#pragma unroll
      for (int c = 0; c < kQueries / 16; ++c)
        wgmma_rs<T, true>(dk, ds_frag[c], q_columns + m.q[0].mn_major_step(c));
      wgmma_commit();
      // 9. Groups end in order, so dV and dQ are done; dK runs on while dq is handed over. dO was last read
      // by dV.
      wgmma_wait<1>();
      fence_operands(dv);
      fence_operands(dq);
      if (lane == 0) m.dout_empty[stage].arrive();
      if (a.dq.base != nullptr) stage_dq(m, dq, group, step);
    };
    with_dq_fragments<Shape>(group, [&](auto count) {
      FragAcc dq[decltype(count)::value];
      finish_step(dq);
    });
    // 10. Group dK is done: q may be loaded anew, and the registers of P^T and dS^T are free for the next
    // step.
    wgmma_wait<0>();
    fence_operands(dk);
    if (lane == 0) m.q_empty[stage].arrive();
  }

  const typename Shape::KeyBlockT at = m.key_block(z, a.scheduler, s);
  if (!at.none) {
    // dq of the last step read k and ds of both warpgroups. Behind the barrier all have waited for theirs,
    // and the memory of k, v and ds can take dk and dv on their way out.
    named_barrier_sync(1, 256);
    write_dk_dv(a, m, at, s, own, dk, dv);
    fence_proxy_async();  // what was written there comes before TMA's next k and v
  }
  __syncwarp();  // of all lanes, before one arrives for the warp
  if (lane == 0) {
    m.k_empty[s % 2].arrive();
    if (Shape::kVStages == 2) m.v_empty[v_place].arrive();
  }
  if (a.ctas_write_dq && at.writes_dq_of_head(a.scheduler) && !write_dq_of_head<Shape>(a, at, group) &&
      lane == 0)
    m.mark(m.non_finite_queries, own / 16, s);
  return step;
}

}  // namespace kiln::hopper
