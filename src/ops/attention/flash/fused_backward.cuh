// flash, backward in one kernel: scores are made again from q, k and lse, once, and five products make all
// three gradients.
//
//   P = exp(scale q k^T - lse)   dP = dO v^T   dS = P (dP - delta)   delta = rowsum(dO o)
//   dv = P^T dO   dk = scale dS^T q   dq = scale dS k
//
// A block has 64 or 128 keys and walks over the queries that see them, 64 at a time. Everything is transposed
// (a warp's rows are keys), so that P^T and dS^T are in the registers from which the tensor cores take their
// left operand for dv and dk, unless two warps share keys; for dq, dS goes through shared memory. Every block
// has a share of every dq it meets. They are added in fp32 in the order of cuda_hopper_walk.h, each at its
// turn, and so always to the same bits; flags in memory say how many shares a tile has. A turn is given on
// half a step after the share was sent, when it has had time to arrive; what is left of the waits the other
// blocks of the multiprocessor hide, where there are others. A last kernel rounds dq. Floor: q, k, v, o, dO
// once in, dq, dk, dv once out; 10 B H D operations per seen pair. Shares of dq add 4 D bytes for each query
// and lot of keys, in the L2 cache.
#pragma once

#include "ops/attention/cuda_flash_fused_parts.cuh"
#include "ops/cuda_device/early.cuh"

namespace kiln::flash {

// Step by step: tile `tile` of head h's queries, and what the backward needs of each.
template <class Shape>
__device__ void load_queries(FusedMemory<Shape>& m, int stage, const FusedArguments<typename Shape::T>& a,
                             int b, const typename Shape::Walk& at) {
  const Sizes& z = m.z;
  const int first = z.first_query + at.tile * kTile, end = z.first_query + z.Tq;
  load_tile<Shape::kThreads>(m.q[stage], a.q, b, at.h, z.D, first, end);
  load_tile<Shape::kThreads>(m.dout[stage], a.dout, b, at.h, z.D, first, end);
  if (threadIdx.x < 2 * kTile / 4) {
    const int i = static_cast<int>(threadIdx.x) % (kTile / 4) * 4;
    const bool deltas = threadIdx.x >= kTile / 4;
    const int64_t from = static_cast<int64_t>(b * z.H + at.h) * a.padded + z.first_stat + at.tile * kTile + i;
    copy_async(deltas ? &m.delta[stage][i] : &m.lse2[stage][i], (deltas ? a.delta : a.lse2) + from, true);
  }
}

// With two strips a warp that shares its keys with none, 4 to 24 bytes are spilled.
template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    flash_backward_kernel(const __grid_constant__ FusedArguments<typename Shape::T> a) {
  using T = typename Shape::T;
  constexpr int kD = Shape::kD, kM = Shape::kStrips, kN = Shape::kAtOnce / 8, kKeys = Shape::kKeys;
  constexpr int kSums = Shape::kChannels / 8, kShare = Shape::kShare;
  extern __shared__ __align__(16) unsigned char memory[];
  auto& m = *reinterpret_cast<FusedMemory<Shape>*>(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, col = lane % 4 * 2;
  const int own = warp % 4 * Shape::kOwn;  // the warp's first key in the block; its queries of dq are 16
  const int share = warp / 4, channel = share * Shape::kChannels, own_queries = warp % 4 * 16;
  wait_for_kernel_before();  // which makes delta, and sets counters to zero
  if (threadIdx.x == 0) {
    m.turn_given = nullptr;
    m.number = a.ticket != nullptr ? atomicAdd(a.ticket, 1) : static_cast<int>(blockIdx.x);
    m.z = a.z;
    if (a.p.varied) {
      m.z.enter_lot(a.p, a.sequences, kKeys, kTile, m.number % a.lots.per_head);
    }
  }
  __syncthreads();
  const Sizes& z = m.z;

  for (int s = 0;; ++s) {
    const typename Shape::Lot at(z, a.lots, m.number, s);
    if (!at.exists) return;
    if (at.none) continue;
    const float scale_log2 = a.z.scale_log2;
    const int j0 = at.j * kKeys, end_key = z.first_key + z.Tk, steps = at.steps(z);
    load_tile<Shape::kThreads>(m.k, a.k, at.b, at.hkv, z.D, z.first_key + j0, end_key);
    load_tile<Shape::kThreads>(m.v, a.v, at.b, at.hkv, z.D, z.first_key + j0, end_key);
    typename Shape::Walk walk(z, at);
    if (steps > 0) load_queries(m, 0, a, at.b, walk);
    close_copies();

    TileSums dk[kM][kSums], dv[kM][kSums];
    bool keys_finite = true;
    for (int t = 0; t < steps; ++t, walk.next(at)) {
      if (t + 1 < steps) {
        typename Shape::Walk ahead = walk;
        ahead.next(at);
        load_queries(m, (t + 1) % 2, a, at.b, ahead);
      }
      close_copies();
      wait_for_copies<1>();
      __syncthreads();

      const auto &q = m.q[t % 2], &dout = m.dout[t % 2];
      const SeenPairs seen(z, walk.tile * kTile, j0);
      const bool masked = !seen.all(kKeys);
      const bool careful = masked && !(all_finite(q) & all_finite(dout));
      if (t == 0) keys_finite = all_finite(m.k);
#pragma unroll 1
      for (int i = 0; i < kTile / kShare; i += Shape::kAtOnce) {
        const int first = share * (kTile / kShare) + i;
        if (i > 0) give_turn_on(m);  // of the step before
        TileSums p[kM][kN] = {}, ds[kM][kN] = {};
        Ampere::multiply_rows<kM>(p, m.k, own, q, first);
        Ampere::multiply_rows<kM>(ds, m.v, own, dout, first);
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          const int query = first + n * 8 + col;
          const auto lse2 = *reinterpret_cast<const float2*>(&m.lse2[t % 2][query]);
          const auto delta = *reinterpret_cast<const float2*>(&m.delta[t % 2][query]);
#pragma unroll
          for (int strip = 0; strip < kM; ++strip) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              float &x = p[strip][n].at[e], &y = ds[strip][n].at[e];
              x = exp2_fast(x * scale_log2 - (e % 2 == 0 ? lse2.x : lse2.y));
              y = x * (y - (e % 2 == 0 ? delta.x : delta.y));
            }
          }
        }
        if (masked) {
#pragma unroll
          for (int n = 0; n < kN; ++n) {
#pragma unroll
            for (int strip = 0; strip < kM; ++strip) {
#pragma unroll
              for (int e = 0; e < 4; ++e) {
                if (!seen(first + n * 8 + col + e % 2, own + 16 * strip + g + e / 2 * 8))
                  p[strip][n].at[e] = ds[strip][n].at[e] = 0;
              }
            }
          }
        }
        if constexpr (kShare == 2) {
          write_strips(m.p, own, first, p);
          write_strips(m.ds, own, first, ds);
        } else {
          if (careful) {
            write_strips(m.ds, own, first, p);  // which has the memory until dS comes
            multiply_carefully<Shape::kAtOnce>(dv, m.ds, dout, seen, own, first, channel);
          } else {
            Ampere::multiply_columns<T, kM, kD>(dv, p, dout, first);
          }
          write_strips(m.ds, own, first, ds);
          if (careful)
            multiply_carefully<Shape::kAtOnce>(dk, m.ds, q, seen, own, first, channel);
          else
            Ampere::multiply_columns<T, kM, kD>(dk, ds, q, first);
        }
      }
      if constexpr (kShare == 2) {
        give_turn_on(m);
        __syncthreads();  // P and dS are there
        if (careful) {
          multiply_carefully<kTile>(dv, m.p, dout, seen, own, 0, channel);
          multiply_carefully<kTile>(dk, m.ds, q, seen, own, 0, channel);
        } else {
          multiply_stored(dv, m.p, own, dout, channel);
          multiply_stored(dk, m.ds, own, q, channel);
        }
      }
      if (a.dq.base == nullptr) {
        __syncthreads();  // before this stage is overwritten
        continue;
      }

      if constexpr (kShare == 1) __syncthreads();  // dS is there
      TileSums dq[1][kSums];
      if (masked && !keys_finite) {
        multiply_seen<kKeys>(
            dq[0], m.k, 0, channel,
            [&](int query, int key) { return static_cast<float>(*m.ds.at(key, own_queries + query)); },
            [&](int query, int key) { return seen(own_queries + query, key); });
      } else {
        multiply_transposed(dq, m.ds, own_queries, m.k, channel);
      }
      const hopper::Turn mine = at.turn(z, a.lots, walk.tile);
      const int64_t number = a.tile_number(z, at.b, walk.h, walk.tile);
      int* flag = a.turns + number * 2 + (mine.late ? 1 : 0);
      if (lane == 0 && mine.turn > 0) {
        while (shares_at(flag) != mine.turn) __nanosleep(20);
      }
      __syncwarp();
      float4* to = a.dq_sums + (mine.late ? a.late_sums : 0) + number * (kTile * kD / 4) + threadIdx.x;
#pragma unroll
      for (int n = 0; n < kSums; ++n) {
        if (channel + n * 8 >= z.D) break;
        const TileSums& x = dq[0][n];
        if (mine.turn == 0)
          to[n * Shape::kThreads] = {x.at[0], x.at[1], x.at[2], x.at[3]};
        else
          add_share(to + n * Shape::kThreads, x);
      }
      __syncthreads();  // all shares are added; and before this stage is overwritten
      if (threadIdx.x == 0) m.turn_given = flag, m.shares = mine.turn + 1;
    }
    give_turn_on(m);
    wait_for_copies<0>();
    __syncthreads();
#pragma unroll
    for (int strip = 0; strip < kM; ++strip) {
      const int row = own + 16 * strip, key = z.first_key + j0 + row;
      if (a.dk.base != nullptr)
        store_strip(a.dk, at.b, at.hkv, z.D, key, end_key, dk[strip], z.scale, z.scale, m.k, row, channel);
      if (a.dv.base != nullptr)
        store_strip(a.dv, at.b, at.hkv, z.D, key, end_key, dv[strip], 1.0f, 1.0f, m.v, row, channel);
    }
    __syncthreads();  // before the next lot's keys come
  }
}

// A tile of dq a block: early and late sums, rounded once.
template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads)
    flash_write_dq_kernel(const __grid_constant__ FusedArguments<typename Shape::T> a) {
  constexpr int kD = Shape::kD, kSums = Shape::kChannels / 8;
  __shared__ __align__(16) PaddedTile<typename Shape::T, kD> way_out;
  wait_for_kernel_before();
  const int64_t number = blockIdx.x;
  const int place = static_cast<int>(number % a.lots.tiles), head = static_cast<int>(number / a.lots.tiles);
  Sizes z = a.z;
  if (a.p.varied) z.enter_tile(a.p, a.sequences, Shape::kKeys, kTile, place);
  const int tile = place - z.first_tile, warp = static_cast<int>(threadIdx.x) / 32;
  const int channel = warp / 4 * Shape::kChannels, row = warp % 4 * 16;
  if (tile < 0 || tile * kTile >= z.Tq) return;  // nobody's place
  const hopper::Shares shares = Shape::Lot::shares(z, a.lots, tile);
  const float4* sums = a.dq_sums + number * (kTile * kD / 4) + threadIdx.x;
  TileSums dq[kSums];
#pragma unroll
  for (int n = 0; n < kSums; ++n) {
    if (channel + n * 8 >= z.D) break;
    const float4 early = shares.early > 0 ? sums[n * Shape::kThreads] : float4{};  // else nobody sees any key
    const float4 late = shares.late > 0 ? sums[a.late_sums + n * Shape::kThreads] : float4{};
    dq[n] = {early.x + late.x, early.y + late.y, early.z + late.z, early.w + late.w};
  }
  store_strip(a.dq, head / z.H, head % z.H, z.D, z.first_query + tile * kTile + row, z.first_query + z.Tq, dq,
              z.scale, z.scale, way_out, row, channel);
}

}  // namespace kiln::flash
