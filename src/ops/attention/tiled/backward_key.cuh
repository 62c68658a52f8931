// The tiled backward's dk and dv (backward.cuh): a block has keys and walks over the queries of its group of
// heads.
#pragma once

#include "ops/attention/tiled/backward_rows.cuh"

namespace kiln::tiled {

template <class T, TileShape kShape>
struct KeySmem {
  Tile<T, kShape.width, kShape.rows> k, v;
  Tile<T, kShape.width, kShape.columns> q[2], dout;
  ScoreTile<kShape> probs;  // P^T, then dS^T
  float lse[2][kShape.columns], delta[2][kShape.columns];
};

// What an atomic ladder step adds to dq of the tile's queries: dS k, with dS^T as all warps have left it.
// Each warp takes as many queries as it has keys. In whatever order blocks come, so bits may differ from run
// to run.
template <TileShape kShape, RowsOfFours K, flash::SeenPredicate S>
__device__ void add_to_queries(const AttentionProblem& p, float* dq_accum, int b, int h, int i0, int j0,
                               const ScoreTile<kShape>& ds, const K& k, const Lane<kShape>& lane,
                               const S& seen) {
  static_assert(kShape.rows == kShape.columns);
  // A key past the last is zeros, but its dS may be infinite.
  const int keys = static_cast<int>(p.Tk - j0 < kShape.rows ? p.Tk - j0 : kShape.rows);
  Outputs<kShape> dq;
#pragma unroll 2
  for (int key = 0; key < keys; ++key) {
    float4 right[kQuads<kShape>];
#pragma unroll
    for (int m = 0; m < kQuads<kShape>; ++m) right[m] = k.four(key, lane.channel(m));
#pragma unroll
    for (int i = 0; i < kShape.per_lane; ++i) {
      if (!seen(key, lane.row(i))) continue;
#pragma unroll
      for (int m = 0; m < kQuads<kShape>; ++m) add_scaled(dq.at[i][m], ds.row[key][lane.row(i)], right[m]);
    }
  }
#pragma unroll
  for (int i = 0; i < kShape.per_lane; ++i) {
    const int query = i0 + lane.row(i);
    if (query >= p.Tq) continue;
    float* to = dq_accum + ((b * p.Tq + query) * p.H + h) * p.D;
#pragma unroll
    for (int m = 0; m < kQuads<kShape>; ++m) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int c = lane.channel(m) + n;
        if (c < p.D) atomicAdd(to + c, component(dq.at[i][m], n));
      }
    }
  }
}

template <LadderStep Step, class T, NamedTileShape Tiles>
__global__ void __launch_bounds__(Tiles::kShape.threads(), Tiles::kShape.blocks)
    tiled_grad_key_kernel(AttentionProblem p, BackwardRows<T> rows) {
  constexpr TileShape kShape = Tiles::kShape;
  constexpr int kThreads = kShape.threads(), kQueries = kShape.columns;
  static_assert(kThreads >= kQueries);
  constexpr bool kAsync = Step::kAsync;
  extern __shared__ __align__(16) unsigned char memory[];
  auto& m = *reinterpret_cast<KeySmem<T, kShape>*>(memory);
  const Lane<kShape> lane;
  const int D = static_cast<int>(p.D);
  const int block = static_cast<int>(blockIdx.x), heads = static_cast<int>(p.B * p.Hkv);
  const int Hkv = static_cast<int>(p.Hkv), group = static_cast<int>(p.group());
  const int j0 = block / heads * kShape.rows;  // the first are seen by most
  const int hkv = block % heads % Hkv;
  const Sequence at(p, rows.sequences, block % heads / Hkv);
  if (j0 >= at.Tk) return;
  const int ahead = at.Tk - at.Tq, first_seen = Step::kSkip && at.causal && j0 > ahead ? j0 - ahead : 0;
  const int first_tile = first_seen / kQueries, tiles = (at.Tq + kQueries - 1) / kQueries;
  const int count = tiles > first_tile ? tiles - first_tile : 0;
  // Step n is query tile first_tile + n % count of head n / count of the group.
  const int steps = count * group;
  const auto head_at = [&](int n) { return hkv * group + n / count; };
  const auto query_at = [&](int n) { return (first_tile + n % count) * kQueries; };
  const auto load_query = [&](int n) {
    const int h = head_at(n), i0 = query_at(n);
    load<kAsync, kThreads>(m.q[n % 2], rows.q, at.batch, h, D, at.first_query + i0, at.end_query());
    if (threadIdx.x < kQueries) {
      const int i = i0 + static_cast<int>(threadIdx.x);
      const int64_t stat = at.stat(p, h, i);
      m.lse[n % 2][threadIdx.x] = i < at.Tq ? rows.lse[stat] : 0.0f;
      m.delta[n % 2][threadIdx.x] = i < at.Tq ? rows.delta[stat] : 0.0f;
    }
  };
  const auto load_dout = [&](int n) {
    load<kAsync, kThreads>(m.dout, rows.dout, at.batch, head_at(n), D, at.first_query + query_at(n),
                           at.end_query());
  };

  load<kAsync, kThreads>(m.k, rows.k, at.batch, hkv, D, at.first_key + j0, at.end_key());
  load<kAsync, kThreads>(m.v, rows.v, at.batch, hkv, D, at.first_key + j0, at.end_key());
  if (steps > 0) load_query(0), load_dout(0);
  Outputs<kShape> dk, dv;
  for (int t = 0; t < steps; ++t) {
    const auto& q = m.q[t % 2];
    const int i0 = query_at(t);
    wait_for_tiles<kAsync>();
    if (t + 1 < steps) load_query(t + 1);
    if constexpr (kAsync) cp_async_commit();
    const Seen<true> seen(at, i0, j0);
    const bool masked =
        !Step::kSplit || i0 + kQueries > at.Tq || (at.causal && j0 + kShape.rows - 1 > i0 + ahead);
    Values<kShape> s;
    gemm_nt<kShape>(s, m.k, q, lane, D);
#pragma unroll
    for (int j = 0; j < kQueries / kShape.lanes; ++j) {
      const float lse = m.lse[t % 2][lane.column(j)];
#pragma unroll
      for (int i = 0; i < kShape.per_lane; ++i) {
        const float prob = probability(s[i][j], p.scale, lse);
        s[i][j] = masked && !seen(lane.row(i), lane.column(j)) ? 0.0f : prob;
      }
    }
    gemm_nn<kShape>(masked, dv, m.probs, s, m.dout, lane, seen);

    Values<kShape> dp;
    gemm_nt<kShape>(dp, m.v, m.dout, lane, D);
    __syncthreads();  // dout has been read by all
    if (t + 1 < steps) load_dout(t + 1);
    if constexpr (kAsync) cp_async_commit();
#pragma unroll
    for (int j = 0; j < kQueries / kShape.lanes; ++j) {
      const float delta = m.delta[t % 2][lane.column(j)];
#pragma unroll
      for (int i = 0; i < kShape.per_lane; ++i) {
        const float ds = s[i][j] * (dp[i][j] - delta);
        s[i][j] = masked && !seen(lane.row(i), lane.column(j)) ? 0.0f : ds;
      }
    }
    gemm_nn<kShape>(masked, dk, m.probs, s, q, lane, seen);
    if constexpr (Step::kAtomic) {
      __syncthreads();  // dS^T of all warps
      add_to_queries<kShape>(p, rows.dq_accum, at.batch, head_at(t), i0, j0, m.probs, m.k, lane, seen);
    }
  }
  if constexpr (kAsync) cp_async_wait<0>();
  const int first = at.first_key + j0, end = at.end_key();
  if (rows.dk.base != nullptr)
    store(rows.dk, at.batch, hkv, D, first, end, dk, lane, [&](int) { return p.scale; });
  if (rows.dv.base != nullptr)
    store(rows.dv, at.batch, hkv, D, first, end, dv, lane, [](int) { return 1.0f; });
}

template <LadderStep Step, class T, NamedTileShape Tiles>
void run_grad_key(RankContext& ctx, const AttentionBackward& b) {
  constexpr TileShape kShape = Tiles::kShape;
  static_assert(sizeof(KeySmem<T, kShape>) <= backward_bytes(kShape, sizeof(T)));
  const AttentionProblem& p = b.p;
  launch(tiled_grad_key_kernel<Step, T, Tiles>, Grid(blocks_for(p.Tk, kShape.rows) * p.B * p.Hkv),
         kShape.threads(), sizeof(KeySmem<T, kShape>), cuda_stream(ctx), p, backward_rows<T>(b));
}

}  // namespace kiln::tiled
