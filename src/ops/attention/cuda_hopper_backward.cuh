// flash_hopper, backward: one kernel makes dq, dk and dv with five products. A block has 128 keys, 64 to each
// of two warpgroups, and walks over the queries that see them; a third warpgroup fetches. Everything is
// transposed (a warpgroup's 64 rows are keys), so that P^T and dS^T are in the registers from which the
// tensor cores take their left operand; for dq, dS^T also goes through shared memory.
//
//   P = exp(scale q k^T - lse)   dP = dO v^T   dS = P (dP - delta)   delta = rowsum(dO o)
//   dv = P^T dO   dk = scale dS^T q   dq = scale sum over the blocks of dS k: see cuda_hopper_dq.cuh
//
// Floor: 10 B H D operations per seen pair. At 128 channels the compiler spills 4 bytes (12 in fp16) around
// the loop; forms of the border without that were as fast to a percent (H200, 16 x 16 heads of 1024: 0.530
// against 0.532 ms).
#pragma once

#include "ops/attention/cuda_hopper_dq.cuh"

namespace kiln::hopper {

template <class Shape>
__device__ void fetch_backward(const BackwardArguments<typename Shape::T>& a, BackwardMemory<Shape>& m) {
  using Lot = typename Shape::Lot;
  const Sizes& z = a.sizes(m);
  constexpr int kRowBytes = Shape::kQueries * static_cast<int>(sizeof(float));
  int step = 0;
  for (int s = 0;; ++s) {
    const Lot at(z, a.lots, m.number, s);
    if (!at.exists) return;
    const int key = at.j * Shape::kKeys, j0 = z.first_key + key;  // in the sequence, and of the tensors
    const int v_place = s % Shape::kValues, v_phase = s / Shape::kValues % 2;
    m.k_free[s % 2].wait((s / 2 % 2) ^ 1);
    // No phase may be missed, also where no v is fetched; and k must not come before, or the warps could be a
    // phase further when this thread looks.
    if (at.steps(z) == 0) m.v_free[v_place].wait(v_phase ^ 1);
    m.k_there[s % 2].expect(m.k[0].kBytes);
    fetch_tile(m.k[s % 2], a.k, at.hkv, j0, at.b, m.k_there[s % 2]);
    QueryWalk<Lot> walk(z, at);
    for (int n = 0, steps = at.steps(z); n < steps; ++n, ++step, walk.next(at)) {
      const int stage = step % Shape::kStages, phase = step / Shape::kStages % 2;
      const int i0 = walk.tile * Shape::kQueries;
      const int64_t row = static_cast<int64_t>(at.b * z.H + walk.h) * a.padded + z.first_stat + i0;
      m.q_free[stage].wait(phase ^ 1);
      const int diagonal = z.causal ? i0 + z.ahead - key : Shape::kKeys;
      m.border[stage] = {diagonal < Shape::kKeys - 1 || z.Tk - key < Shape::kKeys, diagonal, z.Tk - key};
      m.q_there[stage].expect(m.q[0].kBytes + kRowBytes);
      fetch_tile(m.q[stage], a.q, walk.h, z.first_query + i0, at.b, m.q_there[stage]);
      fetch_bytes(m.lse2[stage], a.lse2 + row, kRowBytes, m.q_there[stage]);
      m.dout_free[stage].wait(phase ^ 1);
      if (n == 0) m.v_free[v_place].wait(v_phase ^ 1);
      // The first dout comes with v, and with it its signal.
      m.dout_there[stage].expect(m.dout[0].kBytes + kRowBytes + (n == 0 ? m.v[0].kBytes : 0));
      if (n == 0) fetch_tile(m.v[v_place], a.v, at.hkv, j0, at.b, m.dout_there[stage]);
      fetch_tile(m.dout[stage], a.dout, walk.h, z.first_query + i0, at.b, m.dout_there[stage]);
      fetch_bytes(m.delta[stage], a.delta + row, kRowBytes, m.dout_there[stage]);
    }
  }
}

// From shared memory, where it is asked for: the compiler would read a tile's all at once.
__device__ inline float2 two_at(const float* p) {
  float2 two;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(two.x), "=f"(two.y)
               : "r"(shared_address(p))
               : "memory");
  return two;
}

// dk and dv of a warp's 16 keys, through the memory of k, and of v or ds.
template <class Shape>
__device__ void write_key_gradients(const BackwardArguments<typename Shape::T>& a, BackwardMemory<Shape>& m,
                                    const typename Shape::Lot& at, int s, int own,
                                    const TileSums (&dk)[Shape::kD / 8],
                                    const TileSums (&dv)[Shape::kD / 8]) {
  const Sizes& z = a.sizes(m);
  const int first = z.first_key + at.j * Shape::kKeys + own, end = z.first_key + z.Tk;
  if (!all_finite(dk) || !all_finite(dv)) {
    if (threadIdx.x % 32 == 0) m.note(m.careful_keys, own / 16, s);
    return;
  }
  if (a.dk.base != nullptr)
    flash::store_strip(a.dk, at.b, at.hkv, z.D, first, end, dk, z.scale, z.scale, m.k[s % 2], own);
  if (a.dv.base != nullptr)
    flash::store_strip(a.dv, at.b, at.hkv, z.D, first, end, dv, 1.0f, 1.0f, m.dv_on_its_way(s), own);
}

// At the end, what a warp noted. Not where it was noted: what this takes of registers the products would
// miss.
template <class Shape>
__device__ void do_again_carefully(const BackwardArguments<typename Shape::T>& a, BackwardMemory<Shape>& m) {
  constexpr int kD = Shape::kD;
  const Sizes& z = a.sizes(m);
  const int warp = static_cast<int>(threadIdx.x) / 32 - 4;  // of the eight
  __syncwarp();
  for (int word = 0; word < kMostLots / 32; ++word) {
    const uint32_t keys = m.careful_keys[warp][word], queries = m.careful_queries[warp][word];
    for (uint32_t left = keys | queries; left != 0; left &= left - 1) {
      const int bit = __ffs(static_cast<int>(left)) - 1;
      const typename Shape::Lot at = m.lot(z, a.lots, word * 32 + bit);
      const int first = at.j * Shape::kKeys + warp * 16;
      for (int j = first; (keys >> bit & 1u) != 0 && j < first + 16 && j < z.Tk; ++j) {
        LaneRow<kD> row_dk, row_dv;
        a.careful(z).template of_key<kD>(at.b, at.hkv, j, row_dk, row_dv);
        const int row = z.first_key + j;
        if (a.dk.base != nullptr)
          row_dk.put(a.dk.at(at.b, at.hkv, z.D, row), 0, z.D, z.scale, a.dk.accumulate);
        if (a.dv.base != nullptr) row_dv.put(a.dv.at(at.b, at.hkv, z.D, row), 0, z.D, 1.0f, a.dv.accumulate);
      }
      if ((queries >> bit & 1u) == 0) continue;
      with_half<Shape>(warp / 4, [&](auto count) {
        for_finished_halves<Shape>(a, at, [&](const TilePlace& tile, Shares shares) {
          FinishedHalf<Shape, decltype(count)::value>(a, tile, warp / 4, shares).write_carefully(a, z);
        });
      });
    }
  }
}

// Lot s of the block's; `step` steps were made before. Returns how many there are now.
template <class Shape>
__device__ int make_gradients(const BackwardArguments<typename Shape::T>& a, BackwardMemory<Shape>& m, int s,
                              int step) {
  using T = typename Shape::T;
  constexpr int kD = Shape::kD, kQueries = Shape::kQueries, kKeys = Shape::kKeys;
  // Of lse and delta, read before they are needed: shared memory is busy with the products' operands. All of
  // a tile's would fill the registers.
  constexpr int kAhead = kD <= 64 ? 4 : 2;
  const Sizes& z = a.sizes(m);
  const int group = static_cast<int>(threadIdx.x) / 128 - 1, warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, col = lane % 4 * 2;
  const int own = group * 64 + warp * 16;  // the warp's first key in the block
  const int end = step + m.lot(z, a.lots, s).steps(z);

  TileSums dk[kD / 8], dv[kD / 8];
  const int v_place = s % Shape::kValues;
  m.k_there[s % 2].wait(s / 2 % 2);
  const auto& keys = m.k[s % 2];
  const uint64_t k = keys.rows_from(group * 64), v = m.v[v_place].rows_from(group * 64);
  if (Shape::kValues == 1 && step == end && lane == 0) m.v_free[v_place].arrive();
  for (; step < end; ++step) {
    const int stage = step % Shape::kStages, phase = step / Shape::kStages % 2;
    TileSums scores[kQueries / 8], dp[kQueries / 8];
    m.q_there[stage].wait(phase);
    const uint64_t q = m.q[stage].rows_from(0), dout = m.dout[stage].rows_from(0);
    begin_products();
#pragma unroll
    for (int c = 0; c < kD / 16; ++c) add_product<T>(c, scores, k + keys.step(c), q + m.q[0].step(c));
    close_products();
    m.dout_there[stage].wait(phase);
    begin_products();
#pragma unroll
    for (int c = 0; c < kD / 16; ++c) add_product<T>(c, dp, v + m.v[0].step(c), dout + m.dout[0].step(c));
    close_products();

    float2 early[kAhead];
#pragma unroll
    for (int t = 0; t < kAhead; ++t) early[t] = two_at(&m.lse2[stage][t * 8 + col]);
    wait_for_products<1>();
    settle(scores);
#pragma unroll
    for (int t = 0; t < kQueries / 8; ++t) {
      const float2 lse2 = early[t % kAhead];
      if (t + kAhead < kQueries / 8) early[t % kAhead] = two_at(&m.lse2[stage][(t + kAhead) * 8 + col]);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        scores[t].at[e] = exp2_fast(scores[t].at[e] * a.z.scale_log2 - (e % 2 == 0 ? lse2.x : lse2.y));
    }
    // Away from the border every query sees every key. On it a thread's two keys are seen from `hidden` on.
    const volatile auto& border = m.border[stage];
    if (border.crossed) {
      const int diagonal = border.diagonal, left = border.keys;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = own + g + half * 8, hidden = key >= left ? kQueries : key - diagonal;
#pragma unroll
        for (int t = 0; t < kQueries / 8; ++t) {
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            if (t * 8 + col + e % 2 < hidden) scores[t].at[e] = 0;
          }
        }
      }
    }
    TileA weights[kQueries / 16];
#pragma unroll
    for (int c = 0; c < kQueries / 16; ++c) weights[c] = flash::as_a<T>(scores[2 * c], scores[2 * c + 1]);
    const uint64_t dout_columns = m.dout[stage].columns_from(0);
    begin_products();
#pragma unroll
    for (int c = 0; c < kQueries / 16; ++c)
      multiply_add<T, true>(dv, weights[c], dout_columns + m.dout[0].across_step(c));
    close_products();
#pragma unroll
    for (int t = 0; t < kAhead; ++t) early[t] = two_at(&m.delta[stage][t * 8 + col]);
    wait_for_products<1>();
    settle(dp);
    if (Shape::kValues == 1 && step + 1 == end && lane == 0) m.v_free[v_place].arrive();
    TileA gradients[kQueries / 16];
    auto& ds = m.ds[step % 2];
    const uint32_t ds_row = shared_address(ds.at(own + lane % 16, lane / 16 * 8));
#pragma unroll
    for (int c = 0; c < kQueries / 16; ++c) {
      // From the rounded probabilities: to keep the others would take the registers that are left.
      const Pack<T> probability{
          {weights[c].word[0], weights[c].word[1], weights[c].word[2], weights[c].word[3]}};
#pragma unroll
      for (int t = 2 * c; t < 2 * c + 2; ++t) {
        const float2 delta = early[t % kAhead];
        if (t + kAhead < kQueries / 8) early[t % kAhead] = two_at(&m.delta[stage][(t + kAhead) * 8 + col]);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          dp[t].at[e] = probability[t % 2 * 4 + e] * (dp[t].at[e] - (e % 2 == 0 ? delta.x : delta.y));
      }
      gradients[c] = flash::as_a<T>(dp[2 * c], dp[2 * c + 1]);
      store_tile(ds.further(ds_row, c), gradients[c]);
    }

    show_to_products();
    meet(1, 256);  // whoever has come here has read the ds before last: there are two in turn
    const auto finish_step = [&](auto& dq) {
      const uint64_t left = ds.columns_from(Shape::kSplitsQueries ? group : 0);
      const uint64_t right = keys.columns_from(Shape::kSplitsQueries ? 0 : group);
      begin_products();
#pragma unroll
      for (int c = 0; c < kKeys / 16; ++c)
        add_product<T, true, true>(c, dq, left + ds.across_step(c), right + keys.across_step(c));
      close_products();
      const uint64_t q_columns = m.q[stage].columns_from(0);
      begin_products();
#pragma unroll
      for (int c = 0; c < kQueries / 16; ++c)
        multiply_add<T, true>(dk, gradients[c], q_columns + m.q[0].across_step(c));
      close_products();
      wait_for_products<1>();
      settle(dv);
      settle(dq);
      if (lane == 0) m.dout_free[stage].arrive();
      if (a.dq.base != nullptr) hand_over_share(m, dq, group, step);
    };
    with_half<Shape>(group, [&](auto count) {
      TileSums dq[decltype(count)::value];
      finish_step(dq);
    });
    wait_for_products<0>();
    settle(dk);
    if (lane == 0) m.q_free[stage].arrive();
  }

  const typename Shape::Lot at = m.lot(z, a.lots, s);
  if (!at.none) {
    meet(1, 256);  // k, v and ds have been read by all, and can take dk and dv on their way out
    write_key_gradients(a, m, at, s, own, dk, dv);
    show_to_products();  // and then by the copy engine
  }
  __syncwarp();
  if (lane == 0) {
    m.k_free[s % 2].arrive();
    if (Shape::kValues == 2) m.v_free[v_place].arrive();
  }
  if (a.finishes && at.finishes_head(a.lots) && !finish_head<Shape>(a, at, group) && lane == 0)
    m.note(m.careful_queries, own / 16, s);
  return step;
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    hopper_backward_kernel(const __grid_constant__ BackwardArguments<typename Shape::T> a) {
#ifdef KILN_HOPPER_CODE
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& m = *reinterpret_cast<BackwardMemory<Shape>*>(memory);
  if (threadIdx.x == 0) m.init();
  wait_for_kernel_before();  // which makes delta, and sets counters to zero
  if (threadIdx.x == 0) {
    m.number = a.ticket != nullptr ? atomicAdd(a.ticket, 1) : static_cast<int>(blockIdx.x);
    if constexpr (Shape::kVaried) {
      m.z = a.z;
      const int place = m.number % a.lots.per_head;
      m.z.enter_lot(a.p, a.sequences, Shape::kKeys, Shape::kQueries, place);
    }
  }
  if (threadIdx.x < kMostLots / 32) {
    for (int warp = 0; warp < 8; ++warp)
      m.careful_keys[warp][threadIdx.x] = m.careful_queries[warp][threadIdx.x] = 0;
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    give_registers<Shape::kCopyRegisters>();
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x == 0) fetch_backward(a, m);
    if (threadIdx.x % 32 == 0 && (warp == 1 || warp == 2) && a.dq.base != nullptr)
      send_shares(a, m, warp - 1);
  } else {
    take_registers<Shape::kRegisters>();
    int step = 0;
    for (int s = 0; m.lot(a.sizes(m), a.lots, s).exists; ++s) step = make_gradients(a, m, s, step);
    do_again_carefully(a, m);
  }
#endif
}

}  // namespace kiln::hopper
