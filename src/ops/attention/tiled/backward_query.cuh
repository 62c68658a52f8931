// The tiled backward's dq (backward.cuh): a block has queries and walks over keys.
#pragma once

#include "ops/attention/tiled/backward_rows.cuh"

namespace kiln::tiled {

template <class T, TileShape kShape>
struct QuerySmem {
  Tile<T, kShape.width, kShape.rows> q, dout;
  Tile<T, kShape.width, kShape.columns> k[2], v;
  ScoreTile<kShape> ds;
  float lse[kShape.rows], delta[kShape.rows];
};

template <LadderStep Step, class T, NamedTileShape Tiles>
__global__ void __launch_bounds__(Tiles::kShape.threads(), Tiles::kShape.blocks)
    tiled_grad_query_kernel(AttentionProblem p, BackwardRows<T> rows) {
  constexpr TileShape kShape = Tiles::kShape;
  constexpr int kThreads = kShape.threads(), kKeys = kShape.columns, kPer = kThreads / kShape.rows;
  static_assert(kPer >= 1 && kThreads % kShape.rows == 0);
  constexpr bool kAsync = Step::kAsync;
  extern __shared__ __align__(16) unsigned char memory[];
  auto& m = *reinterpret_cast<QuerySmem<T, kShape>*>(memory);
  const Lane<kShape> lane;
  const int D = static_cast<int>(p.D);
  const int tiles = static_cast<int>((p.Tq + kShape.rows - 1) / kShape.rows);
  const int block = static_cast<int>(blockIdx.x), heads = static_cast<int>(p.B * p.H);
  const int H = static_cast<int>(p.H), i0 = (tiles - 1 - block / heads) * kShape.rows;  // the longest first
  const int h = block % heads % H, hkv = h / static_cast<int>(p.group());
  const Sequence at(p, rows.sequences, block % heads / H);
  if (i0 >= at.Tq) return;
  const int last = i0 + kShape.rows < at.Tq ? i0 + kShape.rows - 1 : at.Tq - 1;
  const int keys = Step::kSkip ? at.visible(last) : at.Tk;
  const int steps = (keys + kKeys - 1) / kKeys;
  const int unmasked = Step::kSplit ? at.visible(i0) / kKeys : 0;
  const auto load_keys = [&](auto& tile, const HeadRows<T>& from, int t) {
    load<kAsync, kThreads>(tile, from, at.batch, hkv, D, at.first_key + t * kKeys, at.end_key());
  };

  {
    const int r = static_cast<int>(threadIdx.x) / kPer, i = i0 + r;
    const float delta = make_delta<kPer>(p, rows, at, h, i);
    if (threadIdx.x % kPer == 0) {
      m.delta[r] = delta;
      m.lse[r] = i < at.Tq ? rows.lse[at.stat(p, h, i)] : 0.0f;
      if (i < at.Tq) rows.delta[at.stat(p, h, i)] = delta;
    }
  }
  if (rows.dq.base == nullptr) return;  // delta was all that is wanted of this kernel

  load<kAsync, kThreads>(m.q, rows.q, at.batch, h, D, at.first_query + i0, at.end_query());
  load<kAsync, kThreads>(m.dout, rows.dout, at.batch, h, D, at.first_query + i0, at.end_query());
  if (steps > 0) load_keys(m.k[0], rows.k, 0), load_keys(m.v, rows.v, 0);
  Outputs<kShape> dq;
  for (int t = 0; t < steps; ++t) {
    const auto& k = m.k[t % 2];
    wait_for_tiles<kAsync>();
    if (t + 1 < steps) load_keys(m.k[(t + 1) % 2], rows.k, t + 1);
    if constexpr (kAsync) cp_async_commit();
    Values<kShape> s, dp;
    gemm_nt<kShape>(s, m.q, k, lane, D);
    gemm_nt<kShape>(dp, m.dout, m.v, lane, D);
    __syncthreads();  // v has been read by all
    if (t + 1 < steps) load_keys(m.v, rows.v, t + 1);
    if constexpr (kAsync) cp_async_commit();

    const Seen<false> seen(at, i0, t * kKeys);
    const bool masked = !Step::kSplit || t >= unmasked;
#pragma unroll
    for (int i = 0; i < kShape.per_lane; ++i) {
      const float lse = m.lse[lane.row(i)], delta = m.delta[lane.row(i)];
#pragma unroll
      for (int j = 0; j < kKeys / kShape.lanes; ++j) {
        const float ds = probability(s[i][j], p.scale, lse) * (dp[i][j] - delta);
        s[i][j] = masked && !seen(lane.row(i), lane.column(j)) ? 0.0f : ds;
      }
    }
    gemm_nn<kShape>(masked, dq, m.ds, s, k, lane, seen);
  }
  if constexpr (kAsync) cp_async_wait<0>();
  store(rows.dq, at.batch, h, D, at.first_query + i0, at.end_query(), dq, lane, [&](int) { return p.scale; });
}

template <LadderStep Step, class T, NamedTileShape Tiles>
void run_grad_query(RankContext& ctx, const AttentionBackward& b) {
  constexpr TileShape kShape = Tiles::kShape;
  static_assert(sizeof(QuerySmem<T, kShape>) <= backward_bytes(kShape, sizeof(T)));
  const AttentionProblem& p = b.p;
  launch(tiled_grad_query_kernel<Step, T, Tiles>, Grid(blocks_for(p.Tq, kShape.rows) * p.B * p.H),
         kShape.threads(), sizeof(QuerySmem<T, kShape>), cuda_stream(ctx), p, backward_rows<T>(b));
}

}  // namespace kiln::tiled
