// Attention's forward by plain multiply-adds: a block has some queries of one head and walks over the keys a
// tile at a time. The running maximum and sum of each query rescale what was summed so far (online softmax);
// scores never leave the block. A LadderStep says which of the later steps of the ladder are taken:
//
//   kSkip    tiles that no query of the block sees are not visited: half of all, for long causal sequences
//   kSplit   indices are compared on border tiles only
//   kAsync   tiles come by cp.async: values while scores are made, the next keys while values are summed
//
// Roofline: q, k, v once in, o and lse once out; 4 D operations per seen pair and head.
#pragma once

#include "ops/attention/tiled/matmul.cuh"

namespace kiln::tiled {

template <class T, TileShape kShape>
struct ForwardSmem {
  Tile<T, kShape.width, kShape.rows> q;
  Tile<T, kShape.width, kShape.columns> k, v;
  ScoreTile<kShape> p;
  Sequence at;  // here and not in registers, which are full
};

template <class T>
struct ForwardRows {
  HeadRows<T> q, k, v, o;
  float* lse;  // [B, H, Tq]
  Sequences sequences;
};

// What a lane keeps of its queries.
template <int kRows>
struct Softmax {
  float top[kRows];  // of the scores so far, unscaled
  float sum[kRows];  // this lane's part
};

// Scores to probabilities against the maximum so far.
template <TileShape kShape>
__device__ void online_softmax(Softmax<kShape.per_lane>& softmax, Outputs<kShape>& o, Values<kShape>& s,
                               float scale_log2) {
#pragma unroll
  for (int i = 0; i < kShape.per_lane; ++i) {
    float top = softmax.top[i];
#pragma unroll
    for (float score : s[i]) top = fmaxf(top, score);  // NaN loses, and shows in the sum
    top = across<kShape>(top, [](float a, float b) { return fmaxf(a, b); });
    const float base = top == -INFINITY ? 0.0f : top;  // no key seen yet: all stay 2^-Inf = 0
    const float keep = exp2_fast((softmax.top[i] - base) * scale_log2);
    softmax.top[i] = top;
    float sum = 0;
#pragma unroll
    for (float& score : s[i]) {
      score = exp2_fast((score - base) * scale_log2);  // subtracted first: exact where it matters
      sum += score;
    }
    softmax.sum[i] = softmax.sum[i] * keep + sum;
#pragma unroll
    for (float4& v : o.at[i]) v = {v.x * keep, v.y * keep, v.z * keep, v.w * keep};
  }
}

template <LadderStep Step, class T, NamedTileShape Tiles>
__global__ void __launch_bounds__(Tiles::kShape.threads(), Tiles::kShape.blocks)
    tiled_forward_kernel(AttentionProblem p, ForwardRows<T> rows) {
  constexpr TileShape kShape = Tiles::kShape;
  constexpr int kThreads = kShape.threads(), kKeys = kShape.columns;
  extern __shared__ __align__(16) unsigned char memory[];
  auto& m = *reinterpret_cast<ForwardSmem<T, kShape>*>(memory);
  const Lane<kShape> lane;
  const int D = static_cast<int>(p.D);
  // The last queries see the most keys: they go first, so that the short ones fill the gaps at the end.
  const int tiles = static_cast<int>((p.Tq + kShape.rows - 1) / kShape.rows);
  const int block = static_cast<int>(blockIdx.x), heads = static_cast<int>(p.B * p.H);
  const int H = static_cast<int>(p.H), i0 = (tiles - 1 - block / heads) * kShape.rows;
  const int h = block % heads % H, hkv = h / static_cast<int>(p.group());
  const Sequence& at = m.at;
  if (threadIdx.x == 0) m.at = Sequence(p, rows.sequences, block % heads / H);
  __syncthreads();
  if (i0 >= at.Tq) return;
  const int last = i0 + kShape.rows < at.Tq ? i0 + kShape.rows - 1 : at.Tq - 1;
  const int keys = Step::kSkip ? at.visible(last) : at.Tk;
  const int steps = (keys + kKeys - 1) / kKeys;
  const int unmasked = Step::kSplit ? at.visible(i0) / kKeys : 0;  // that all see whole
  const auto load_keys = [&](auto& tile, const HeadRows<T>& from, int t) {
    load<Step::kAsync, kThreads>(tile, from, at.batch, hkv, D, at.first_key + t * kKeys, at.end_key());
  };

  load<Step::kAsync, kThreads>(m.q, rows.q, at.batch, h, D, at.first_query + i0, at.end_query());
  if (steps > 0) load_keys(m.k, rows.k, 0);
  Outputs<kShape> o;
  Softmax<kShape.per_lane> softmax;
#pragma unroll
  for (int i = 0; i < kShape.per_lane; ++i) softmax.top[i] = -INFINITY, softmax.sum[i] = 0;
  const float scale_log2 = p.scale * kLog2E;
  for (int t = 0; t < steps; ++t) {
    wait_for_tiles<Step::kAsync>();  // k of tile t; and v of t - 1 has been read by all
    load_keys(m.v, rows.v, t);
    if constexpr (Step::kAsync) cp_async_commit();
    Values<kShape> s;
    gemm_nt<kShape>(s, m.q, m.k, lane, D);
    wait_for_tiles<Step::kAsync>();  // v of tile t; and k of t has been read by all
    if (t + 1 < steps) load_keys(m.k, rows.k, t + 1);
    if constexpr (Step::kAsync) cp_async_commit();

    const Seen<false> seen(at, i0, t * kKeys);
    const bool masked = !Step::kSplit || t >= unmasked;
    if (masked) {
#pragma unroll
      for (int i = 0; i < kShape.per_lane; ++i) {
#pragma unroll
        for (int j = 0; j < kKeys / kShape.lanes; ++j) {
          if (!seen(lane.row(i), lane.column(j))) s[i][j] = -INFINITY;
        }
      }
    }
    online_softmax<kShape>(softmax, o, s, scale_log2);
    gemm_nn<kShape>(masked, o, m.p, s, m.v, lane, seen);
  }
  if constexpr (Step::kAsync) cp_async_wait<0>();

  float factor[kShape.per_lane];
#pragma unroll
  for (int i = 0; i < kShape.per_lane; ++i) {
    const float sum = across<kShape>(softmax.sum[i], [](float x, float y) { return x + y; });
    factor[i] = sum == 0 ? 0.0f : 1.0f / sum;  // NaN goes through
    const int query = i0 + lane.row(i);
    if (lane.x == 0 && query < at.Tq)
      rows.lse[at.stat(p, h, query)] = sum == 0 ? -INFINITY : softmax.top[i] * p.scale + logf(sum);
  }
  store(rows.o, at.batch, h, D, at.first_query + i0, at.end_query(), o, lane,
        [&](int i) { return factor[i]; });
}

template <LadderStep Step, class T, NamedTileShape Tiles>
void run_forward(RankContext& ctx, const AttentionForward& f) {
  constexpr TileShape kShape = Tiles::kShape;
  static_assert(sizeof(ForwardSmem<T, kShape>) == forward_bytes(kShape, sizeof(T)));
  const AttentionProblem& p = f.p;
  const ForwardRows<T> rows{.q = flash::head_rows<T>(f.q, p.D),
                            .k = flash::head_rows<T>(f.k, p.D),
                            .v = flash::head_rows<T>(f.v, p.D),
                            .o = flash::head_rows<T>(f.o, p.D),
                            .lse = f.lse.data<float>(),
                            .sequences = f.sequences};
  launch(tiled_forward_kernel<Step, T, Tiles>, Grid(blocks_for(p.Tq, kShape.rows) * p.B * p.H),
         kShape.threads(), sizeof(ForwardSmem<T, kShape>), cuda_stream(ctx), p, rows);
}

}  // namespace kiln::tiled
