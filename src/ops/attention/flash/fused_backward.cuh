// flash, the fused backward: scores are made again from q, k and lse, once, and five matmuls in one kernel
// make all three gradients.
//
//   P = exp(scale q k^T - lse)   dP = dO v^T   dS = P (dP - delta)   delta = rowsum(dO o)
//   dv = P^T dO   dk = scale dS^T q   dq = scale dS k
//
// A block has 64 or 128 keys and walks over the queries that see them, 64 at a time. Everything is transposed
// (a warp's rows are keys), so that P^T and dS^T are in the registers from which the tensor cores take their
// left operand for dv and dk, unless two warps share keys; for dq, dS goes through shared memory. Every block
// contributes to every dq tile it visits. Contributions are added in fp32 in the order of the tile scheduler
// (hopper/backward_tile_scheduler.h), each at its turn of the dQ semaphore (dq_semaphore.cuh), and so always
// to the same bits. The semaphore is released half a step after a contribution was sent, when it has had time
// to arrive; what is left of the waits the other blocks of the multiprocessor hide, where there are others. A
// last kernel rounds dq.
//
// Stages: two of q and dO with lse and delta, by cp.async, the copies of step t + 1 committed as one group
// before step t is waited for; k and v once a key block.
//
// Roofline: q, k, v, o, dO once in, dq, dk, dv once out; 10 B H D operations per seen pair. Contributions to
// dq add 4 D bytes for each query and key block, in the L2 cache.
#pragma once

#include "ops/attention/dq_semaphore.cuh"
#include "ops/attention/flash/fused_matmul.cuh"
#include "ops/cuda_device/pdl.cuh"

namespace kiln::flash {

// Thread 0 releases the semaphore of the step before, once what the block added to dq is in memory. It is
// called half a step after that was sent, so that it has had time to arrive; whoever is next is a step behind
// anyway.
template <FusedBlockShape Shape>
__device__ void release_dq_turn(FusedSmem<Shape>& m) {
  if (threadIdx.x != 0 || m.pending == nullptr) return;
  __threadfence();
  semaphore_release(m.pending, m.pending_value);
  m.pending = nullptr;
}

__device__ inline void red_add(float4* to, const FragAcc& x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x.at[0]),
               "f"(x.at[1]), "f"(x.at[2]), "f"(x.at[3])
               : "memory");
#else
  auto* one = reinterpret_cast<float*>(to);
#pragma unroll
  for (int e = 0; e < 4; ++e) atomicAdd(one + e, x.at[e]);
#endif
}

// A step's query tile, dO, and lse and delta of its queries.
template <FusedBlockShape Shape>
__device__ void load_queries(FusedSmem<Shape>& m, int stage, const FusedParams<typename Shape::T>& a, int b,
                             const typename Shape::Walk& at) {
  const SeqlenInfo& z = m.z;
  const int first = z.first_query + at.tile * kTile, end = z.first_query + z.Tq;
  load_tile<Shape::kThreads>(m.q[stage], a.q, b, at.h, z.D, first, end);
  load_tile<Shape::kThreads>(m.dout[stage], a.dout, b, at.h, z.D, first, end);
  if (threadIdx.x < 2 * kTile / 4) {
    const int i = static_cast<int>(threadIdx.x) % (kTile / 4) * 4;
    const bool deltas = threadIdx.x >= kTile / 4;
    const int64_t from = static_cast<int64_t>(b * z.H + at.h) * a.padded + z.first_stat + at.tile * kTile + i;
    cp_async(deltas ? &m.delta[stage][i] : &m.lse2[stage][i], (deltas ? a.delta : a.lse2) + from, true);
  }
}

// With two strips a warp that shares its keys with none, 4 to 24 bytes are spilled.
template <FusedBlockShape Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    flash_backward_kernel(const __grid_constant__ FusedParams<typename Shape::T> a) {
  using T = typename Shape::T;
  constexpr int kD = Shape::kD, kM = Shape::kStrips, kN = Shape::kAtOnce / 8, kKeys = Shape::kKeys;
  constexpr int kSums = Shape::kChannels / 8, kShare = Shape::kShare;
  extern __shared__ __align__(16) unsigned char memory[];
  auto& m = *reinterpret_cast<FusedSmem<Shape>*>(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, col = lane % 4 * 2;
  const int own = warp % 4 * Shape::kOwn;  // the warp's first key in the block; its queries of dq are 16
  const int share = warp / 4, channel = share * Shape::kChannels, own_queries = warp % 4 * 16;
  pdl_wait();  // for the kernel that makes delta and sets the semaphores to zero
  if (threadIdx.x == 0) {
    m.pending = nullptr;
    m.number = a.ticket != nullptr ? atomicAdd(a.ticket, 1) : static_cast<int>(blockIdx.x);
    m.z = a.z;
    if (a.p.varlen) {
      m.z.enter_key_block(a.p, a.sequences, kKeys, kTile, m.number % a.scheduler.ctas_per_head);
    }
  }
  __syncthreads();
  const SeqlenInfo& z = m.z;

  for (int s = 0;; ++s) {
    const typename Shape::KeyBlockT at(z, a.scheduler, m.number, s);
    if (!at.exists) return;
    if (at.none) continue;
    const float scale_log2 = a.z.scale_log2;
    const int j0 = at.j * kKeys, end_key = z.first_key + z.Tk, steps = at.steps(z);
    load_tile<Shape::kThreads>(m.k, a.k, at.b, at.hkv, z.D, z.first_key + j0, end_key);
    load_tile<Shape::kThreads>(m.v, a.v, at.b, at.hkv, z.D, z.first_key + j0, end_key);
    typename Shape::Walk walk(z, at);
    if (steps > 0) load_queries(m, 0, a, at.b, walk);
    cp_async_commit();

    FragAcc dk[kM][kSums], dv[kM][kSums];
    bool keys_finite = true;
    for (int t = 0; t < steps; ++t, walk.next(at)) {
      if (t + 1 < steps) {
        typename Shape::Walk ahead = walk;
        ahead.next(at);
        load_queries(m, (t + 1) % 2, a, at.b, ahead);
      }
      cp_async_commit();
      cp_async_wait<1>();  // this thread's copies of step t; those of t + 1 are under way
      __syncthreads();     // all threads'

      const auto &q = m.q[t % 2], &dout = m.dout[t % 2];
      const SeenPairs seen(z, walk.tile * kTile, j0);
      const bool masked = !seen.all(kKeys);
      const bool non_finite = masked && !(all_finite(q) & all_finite(dout));
      if (t == 0) keys_finite = all_finite(m.k);
#pragma unroll 1
      for (int i = 0; i < kTile / kShare; i += Shape::kAtOnce) {
        const int first = share * (kTile / kShare) + i;
        if (i > 0) release_dq_turn(m);  // of the step before
        FragAcc p[kM][kN] = {}, ds[kM][kN] = {};
        Ampere::gemm_nt<kM>(p, m.k, own, q, first);
        Ampere::gemm_nt<kM>(ds, m.v, own, dout, first);
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
          store_scores(m.p, own, first, p);
          store_scores(m.ds, own, first, ds);
        } else {
          if (non_finite) {
            store_scores(m.ds, own, first, p);  // which has the memory until dS comes
            gemm_smem_seen<Shape::kAtOnce>(dv, m.ds, dout, seen, own, first, channel);
          } else {
            Ampere::gemm_nn<T, kM, kD>(dv, p, dout, first);
          }
          store_scores(m.ds, own, first, ds);
          if (non_finite)
            gemm_smem_seen<Shape::kAtOnce>(dk, m.ds, q, seen, own, first, channel);
          else
            Ampere::gemm_nn<T, kM, kD>(dk, ds, q, first);
        }
      }
      if constexpr (kShare == 2) {
        release_dq_turn(m);
        __syncthreads();  // P and dS of all warps are in shared memory
        if (non_finite) {
          gemm_smem_seen<kTile>(dv, m.p, dout, seen, own, 0, channel);
          gemm_smem_seen<kTile>(dk, m.ds, q, seen, own, 0, channel);
        } else {
          gemm_smem(dv, m.p, own, dout, channel);
          gemm_smem(dk, m.ds, own, q, channel);
        }
      }
      if (a.dq.base == nullptr) {
        __syncthreads();  // all have read step t, before the copies of t + 2 overwrite it
        continue;
      }

      if constexpr (kShare == 1) __syncthreads();  // dS of all warps is in shared memory
      FragAcc dq[1][kSums];
      if (masked && !keys_finite) {
        gemm_seen<kKeys>(
            dq[0], m.k, 0, channel,
            [&](int query, int key) { return static_cast<float>(*m.ds.at(key, own_queries + query)); },
            [&](int query, int key) { return seen(own_queries + query, key); });
      } else {
        gemm_tn(dq, m.ds, own_queries, m.k, channel);
      }
      const hopper::DqTurn mine = at.dq_turn(z, a.scheduler, walk.tile);
      const int64_t number = a.dq_tile_index(z, at.b, walk.h, walk.tile);
      int* flag = a.dq_semaphore + number * 2 + (mine.late ? 1 : 0);
      if (lane == 0 && mine.turn > 0) {
        semaphore_wait(flag, mine.turn);
      }
      __syncwarp();
      float4* to = a.dq_accum + (mine.late ? a.late_offset : 0) + number * (kTile * kD / 4) + threadIdx.x;
#pragma unroll
      for (int n = 0; n < kSums; ++n) {
        if (channel + n * 8 >= z.D) break;
        const FragAcc& x = dq[0][n];
        if (mine.turn == 0)
          to[n * Shape::kThreads] = {x.at[0], x.at[1], x.at[2], x.at[3]};
        else
          red_add(to + n * Shape::kThreads, x);
      }
      // All threads have issued their adds, which the release by thread 0 must come behind; and all have read
      // step t and dS, before the next step overwrites them.
      __syncthreads();
      if (threadIdx.x == 0) m.pending = flag, m.pending_value = mine.turn + 1;
    }
    release_dq_turn(m);
    cp_async_wait<0>();
    __syncthreads();
#pragma unroll
    for (int strip = 0; strip < kM; ++strip) {
      const int row = own + 16 * strip, key = z.first_key + j0 + row;
      if (a.dk.base != nullptr)
        store_strip(a.dk, at.b, at.hkv, z.D, key, end_key, dk[strip], z.scale, z.scale, m.k, row, channel);
      if (a.dv.base != nullptr)
        store_strip(a.dv, at.b, at.hkv, z.D, key, end_key, dv[strip], 1.0f, 1.0f, m.v, row, channel);
    }
    __syncthreads();  // all have stored, before the next key block overwrites k and v
  }
}

// A tile of dq to a block: early and late sums, rounded once.
template <FusedBlockShape Shape>
__global__ void __launch_bounds__(Shape::kThreads)
    flash_write_dq_kernel(const __grid_constant__ FusedParams<typename Shape::T> a) {
  constexpr int kD = Shape::kD, kSums = Shape::kChannels / 8;
  __shared__ __align__(16) PaddedTile<typename Shape::T, kD> staging;
  pdl_wait();
  const int64_t number = blockIdx.x;
  const int place = static_cast<int>(number % a.scheduler.query_tiles),
            head = static_cast<int>(number / a.scheduler.query_tiles);
  SeqlenInfo z = a.z;
  if (a.p.varlen) z.enter_query_tile(a.p, a.sequences, Shape::kKeys, kTile, place);
  const int tile = place - z.first_tile, warp = static_cast<int>(threadIdx.x) / 32;
  const int channel = warp / 4 * Shape::kChannels, row = warp % 4 * 16;
  if (tile < 0 || tile * kTile >= z.Tq) return;  // nobody's place
  const hopper::DqCounts counts = Shape::KeyBlockT::dq_counts(z, a.scheduler, tile);
  const float4* sums = a.dq_accum + number * (kTile * kD / 4) + threadIdx.x;
  FragAcc dq[kSums];
#pragma unroll
  for (int n = 0; n < kSums; ++n) {
    if (channel + n * 8 >= z.D) break;
    const float4 early = counts.early > 0 ? sums[n * Shape::kThreads] : float4{};  // else nobody sees any key
    const float4 late = counts.late > 0 ? sums[a.late_offset + n * Shape::kThreads] : float4{};
    dq[n] = {early.x + late.x, early.y + late.y, early.z + late.z, early.w + late.w};
  }
  store_strip(a.dq, head / z.H, head % z.H, z.D, z.first_query + tile * kTile + row, z.first_query + z.Tq, dq,
              z.scale, z.scale, staging, row, channel);
}

}  // namespace kiln::flash
