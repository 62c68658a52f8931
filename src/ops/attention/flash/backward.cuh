// flash, backward of heads over 128 wide (others: fused_backward.cuh): scores are made again from
// q, k and lse. Three kernels, each the one writer of its gradient, so always the same bits; the price is
// that scores are made three times and dP twice (eight matmuls where five would do; see flash_table.h).
//
//   P = exp(scale q k^T - lse)   dP = dO v^T   dS = P (dP - delta)   delta = rowsum(dO o)
//   dq = scale dS k: a block has 64 queries and walks over keys; it also writes delta, for the one of dk
//   dk = scale dS^T q, dv = P^T dO: a block has 64 keys and walks over the queries of its group of heads
//
// In those two everything is transposed (a warp's 16 rows are keys), so that P^T and dS^T are in the
// registers from which the tensor cores take their left operand.
// Roofline: q, k, v, o, dO once in, dq, dk, dv once out; 10 B H D operations per seen pair.
#pragma once

#include "ops/attention/flash/tiles.cuh"

namespace kiln::flash {

// A warp has one strip: its sums fill the registers as they are. A block has four, for its 64 rows.
constexpr int kBackwardWarps = 4;
constexpr int kBlock = 32 * kBackwardWarps;

template <class T>
struct BackwardRows {
  HeadRows<T> q, k, v, o, dout, dq, dk, dv;
  const float* lse;  // [B, H, Tq]
  float* delta;      // [B, H, Tq]
  Sequences sequences;
};

template <MmaEngine Engine, class T, int kD>
struct QuerySmem {
  typename Engine::template Tile<T, kD> q, dout;
  typename Engine::template Tile<T, kD> k[2], v[2];
  ProbScratch<T> scratch[kBackwardWarps];
  float lse[kTile], delta[kTile];  // lse times log2(e)
};

// delta of the block's queries, two threads to each.
template <class T>
__device__ void make_delta(const AttentionProblem& p, const BackwardRows<T>& rows, const Sequence& at, int h,
                           int i0, float (&delta)[kTile]) {
  const int D = static_cast<int>(p.D), r = static_cast<int>(threadIdx.x) / 2, i = i0 + r;
  float sum = 0;
  if (i < at.Tq) {
    const int row = at.first_query + i;
    const T *o = rows.o.at(at.batch, h, D, row), *dout = rows.dout.at(at.batch, h, D, row);
    if (rows.o.vectorizable && rows.dout.vectorizable) {
      for (int c = threadIdx.x % 2 * 8; c < D; c += 16) {
        const Pack<T> x = load_pack(o + c), y = load_pack(dout + c);
#pragma unroll
        for (int k = 0; k < 8; ++k) sum += x[k] * y[k];
      }
    } else {
      for (int c = threadIdx.x % 2; c < D; c += 2)
        sum += static_cast<float>(o[c]) * static_cast<float>(dout[c]);
    }
  }
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  if (threadIdx.x % 2 != 0) return;
  delta[r] = sum;
  if (i < at.Tq) rows.delta[at.stat(p, h, i)] = sum;
}

template <MmaEngine Engine, class T, int kD>
__global__ void __launch_bounds__(kBlock) flash_grad_query_kernel(AttentionProblem p, BackwardRows<T> rows) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& m = *reinterpret_cast<QuerySmem<Engine, T, kD>*>(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, col = lane % 4 * 2;
  const int D = static_cast<int>(p.D);
  const int tiles = static_cast<int>((p.Tq + kTile - 1) / kTile), heads = static_cast<int>(p.B * p.H);
  const int block = static_cast<int>(blockIdx.x), H = static_cast<int>(p.H);
  const int i0 = (tiles - 1 - block / heads) * kTile;  // the longest first
  const int h = block % heads % H, hkv = h / static_cast<int>(p.group());
  const Sequence at(p, rows.sequences, block % heads / H);
  if (i0 >= at.Tq) return;
  const int last = i0 + kTile < at.Tq ? i0 + kTile - 1 : at.Tq - 1;
  const int unmasked = at.visible(i0) / kTile, steps = (at.visible(last) + kTile - 1) / kTile;
  const auto load_keys = [&](int t) {
    load_tile<kBlock>(m.k[t % 2], rows.k, at.batch, hkv, D, at.first_key + t * kTile, at.end_key());
    load_tile<kBlock>(m.v[t % 2], rows.v, at.batch, hkv, D, at.first_key + t * kTile, at.end_key());
  };

  load_tile<kBlock>(m.q, rows.q, at.batch, h, D, at.first_query + i0, at.end_query());
  load_tile<kBlock>(m.dout, rows.dout, at.batch, h, D, at.first_query + i0, at.end_query());
  if (steps > 0) load_keys(0);
  cp_async_commit();
  make_delta(p, rows, at, h, i0, m.delta);
  if (threadIdx.x < kTile) {
    const int i = i0 + static_cast<int>(threadIdx.x);
    m.lse[threadIdx.x] = i < at.Tq ? rows.lse[at.stat(p, h, i)] * kLog2E : 0.0f;
  }
  if (rows.dq.base == nullptr) return;  // delta was all that is wanted of this kernel

  FragAcc dq[1][kD / 8];
  const float scale_log2 = p.scale * kLog2E;
  for (int t = 0; t < steps; ++t) {
    if (t + 1 < steps) load_keys(t + 1);
    cp_async_commit();
    cp_async_wait<1>();  // this thread's copies of tile t; those of t + 1 are under way
    Engine::show();
    __syncthreads();  // all threads'

    FragAcc s[1][kNTiles] = {}, dp[1][kNTiles] = {};
    Engine::template gemm_nt<1>(s, m.q, warp * 16, m.k[t % 2]);
    Engine::template gemm_nt<1>(dp, m.dout, warp * 16, m.v[t % 2]);
    Engine::finish(s, dp);
    const TileMask<false> seen(at, i0 + warp * 16, t * kTile);
    const bool masked = t >= unmasked;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = g + e / 2 * 8;
      const float lse = m.lse[warp * 16 + row], delta = m.delta[warp * 16 + row];
#pragma unroll
      for (int n = 0; n < kNTiles; ++n) {
        const float ds = exp2_fast(s[0][n].at[e] * scale_log2 - lse) * (dp[0][n].at[e] - delta);
        s[0][n].at[e] = masked && !seen(row, n * 8 + col + e % 2) ? 0.0f : ds;
      }
    }
    if (masked && !all_finite(m.k[t % 2])) {
      write_scratch(m.scratch[warp], s[0]);
      gemm_nn_seen<T>(dq[0], m.scratch[warp], m.k[t % 2], seen);
    } else {
      Engine::template gemm_nn<T, 1, kD>(dq, s, m.k[t % 2]);
      Engine::finish(dq);
    }
    __syncthreads();  // all have read tile t, before the copies of t + 2 overwrite it
  }
  if (steps == 0) cp_async_wait<0>();
  __syncthreads();
  store_strip(rows.dq, at.batch, h, D, at.first_query + i0 + warp * 16, at.end_query(), dq[0], p.scale,
              p.scale, m.q, warp * 16);
}

template <MmaEngine Engine, class T, int kD>
struct KeySmem {
  typename Engine::template Tile<T, kD> k, v;
  typename Engine::template Tile<T, kD> q[2], dout[2];
  ProbScratch<T> scratch[kBackwardWarps];
  float lse[2][kTile], delta[2][kTile];
  Sequence at;  // here and not in registers, which are full
};

// Step n of a key block is query tile `first + n % count` of head n / count of its group.
template <MmaEngine Engine, class T, int kD>
__device__ void load_queries(KeySmem<Engine, T, kD>& m, int stage, const AttentionProblem& p,
                             const BackwardRows<T>& rows, const Sequence& at, int h, int i0) {
  const int D = static_cast<int>(p.D);
  load_tile<kBlock>(m.q[stage], rows.q, at.batch, h, D, at.first_query + i0, at.end_query());
  load_tile<kBlock>(m.dout[stage], rows.dout, at.batch, h, D, at.first_query + i0, at.end_query());
  if (threadIdx.x < kTile) {
    const int i = i0 + static_cast<int>(threadIdx.x);
    const int64_t stat = at.stat(p, h, i);
    m.lse[stage][threadIdx.x] = i < at.Tq ? rows.lse[stat] * kLog2E : 0.0f;
    m.delta[stage][threadIdx.x] = i < at.Tq ? rows.delta[stat] : 0.0f;
  }
}

// kKeys: makes dk; kValues: makes dv.
template <MmaEngine Engine, class T, int kD, bool kKeys, bool kValues>
__global__ void __launch_bounds__(kBlock, 1) flash_grad_key_kernel(AttentionProblem p, BackwardRows<T> rows) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& m = *reinterpret_cast<KeySmem<Engine, T, kD>*>(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, col = lane % 4 * 2;
  const int D = static_cast<int>(p.D);
  const int block = static_cast<int>(blockIdx.x), heads = static_cast<int>(p.B * p.Hkv);
  const int Hkv = static_cast<int>(p.Hkv), group = static_cast<int>(p.group());
  const int j0 = block / heads * kTile;  // the first keys are seen by the most
  const int hkv = block % heads % Hkv;
  const Sequence& at = m.at;
  if (threadIdx.x == 0) m.at = Sequence(p, rows.sequences, block % heads / Hkv);
  __syncthreads();
  if (j0 >= at.Tk) return;
  const int ahead = at.Tk - at.Tq, first_seen = at.causal && j0 > ahead ? j0 - ahead : 0;
  const int first_tile = first_seen / kTile, tiles = (at.Tq + kTile - 1) / kTile;
  const int count = tiles > first_tile ? tiles - first_tile : 0;
  const int steps = count * group;
  const auto head_at = [&](int n) { return hkv * group + n / count; };
  const auto query_at = [&](int n) { return (first_tile + n % count) * kTile; };

  load_tile<kBlock>(m.k, rows.k, at.batch, hkv, D, at.first_key + j0, at.end_key());
  if constexpr (kKeys) load_tile<kBlock>(m.v, rows.v, at.batch, hkv, D, at.first_key + j0, at.end_key());
  if (steps > 0) load_queries(m, 0, p, rows, at, head_at(0), query_at(0));
  cp_async_commit();

  FragAcc dk[1][kD / 8], dv[1][kD / 8];
  const float scale_log2 = p.scale * kLog2E;
  for (int t = 0; t < steps; ++t) {
    if (t + 1 < steps) load_queries(m, (t + 1) % 2, p, rows, at, head_at(t + 1), query_at(t + 1));
    cp_async_commit();
    cp_async_wait<1>();  // this thread's copies of tile t; those of t + 1 are under way
    Engine::show();
    __syncthreads();  // all threads'

    const auto &q = m.q[t % 2], &dout = m.dout[t % 2];
    const int i0 = query_at(t);
    const bool masked = i0 + kTile > at.Tq || (at.causal && j0 + kTile - 1 > i0 + at.Tk - at.Tq);
    const TileMask<true> seen(at, i0, j0 + warp * 16);
    FragAcc s[1][kNTiles] = {}, dp[1][kNTiles] = {};
    Engine::template gemm_nt<1>(s, m.k, warp * 16, q);
    if constexpr (kKeys) Engine::template gemm_nt<1>(dp, m.v, warp * 16, dout);
    Engine::finish(s, dp);
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {  // to probabilities, and the gradient of the scores
        const int query = n * 8 + col + e % 2;
        const bool hidden = masked && !seen(g + e / 2 * 8, query);
        const float probability = exp2_fast(s[0][n].at[e] * scale_log2 - m.lse[t % 2][query]);
        const float ds = probability * (dp[0][n].at[e] - m.delta[t % 2][query]);
        s[0][n].at[e] = hidden ? 0.0f : probability;
        dp[0][n].at[e] = hidden ? 0.0f : ds;
      }
    }
    if (masked && !(all_finite(q) & all_finite(dout))) {
      if constexpr (kValues) {
        write_scratch(m.scratch[warp], s[0]);
        gemm_nn_seen<T>(dv[0], m.scratch[warp], dout, seen);
      }
      if constexpr (kKeys) {
        write_scratch(m.scratch[warp], dp[0]);
        gemm_nn_seen<T>(dk[0], m.scratch[warp], q, seen);
      }
    } else {
      if constexpr (kValues) Engine::template gemm_nn<T, 1, kD>(dv, s, dout);
      if constexpr (kKeys) Engine::template gemm_nn<T, 1, kD>(dk, dp, q);
      Engine::finish(dv, dk);
    }
    __syncthreads();  // all have read tile t, before the copies of t + 2 overwrite it
  }
  if (steps == 0) cp_async_wait<0>();
  __syncthreads();
  const int own = at.first_key + j0 + warp * 16;
  if (kKeys && rows.dk.base != nullptr)
    store_strip(rows.dk, at.batch, hkv, D, own, at.end_key(), dk[0], p.scale, p.scale, m.k, warp * 16);
  if (kValues && rows.dv.base != nullptr)
    store_strip(rows.dv, at.batch, hkv, D, own, at.end_key(), dv[0], 1.0f, 1.0f, m.v, warp * 16);
}

template <MmaEngine Engine, class T, int kD, bool kKeys, bool kValues>
void run_grad_key(Stream stream, const AttentionProblem& p, const BackwardRows<T>& rows) {
  launch(flash_grad_key_kernel<Engine, T, kD, kKeys, kValues>, Grid(blocks_for(p.Tk, kTile) * p.B * p.Hkv),
         kBlock, sizeof(KeySmem<Engine, T, kD>), stream, p, rows);
}

template <MmaEngine Engine, class Of>
void backward(RankContext& ctx, const AttentionBackward& b) {
  const AttentionProblem& p = b.p;
  const Stream stream = cuda_stream(ctx);
  with_tensor_core_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_tile_width(Of{}, p.D, [&](auto width) {
      constexpr int kD = decltype(width)::value;
      const BackwardRows<T> rows{.q = head_rows<T>(b.q, p.D),
                                 .k = head_rows<T>(b.k, p.D),
                                 .v = head_rows<T>(b.v, p.D),
                                 .o = head_rows<T>(b.o, p.D),
                                 .dout = head_rows<T>(b.dout, p.D),
                                 .dq = head_rows<T>(b.dq.tensor, p.D, b.dq.accumulate),
                                 .dk = head_rows<T>(b.dk.tensor, p.D, b.dk.accumulate),
                                 .dv = head_rows<T>(b.dv.tensor, p.D, b.dv.accumulate),
                                 .lse = b.lse.data<float>(),
                                 .delta = reinterpret_cast<float*>(b.workspace.raw()),
                                 .sequences = b.sequences};
      launch(flash_grad_query_kernel<Engine, T, kD>, Grid(blocks_for(p.Tq, kTile) * p.B * p.H), kBlock,
             sizeof(QuerySmem<Engine, T, kD>), stream, p, rows);
      constexpr FlashTiles kTiles = flash_tiles(kD);
      static_assert(sizeof(QuerySmem<Engine, T, kD>) <= flash_backward_bytes(kTiles));
      static_assert(sizeof(KeySmem<Engine, T, kD>) <= flash_backward_bytes(kTiles));
      if (b.dk.wanted()) run_grad_key<Engine, T, kD, true, false>(stream, p, rows);
      if (b.dv.wanted()) run_grad_key<Engine, T, kD, false, true>(stream, p, rows);
    });
  });
}

}  // namespace kiln::flash
