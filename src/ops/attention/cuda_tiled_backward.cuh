// Attention's backward by plain multiply-adds. Scores are made again from q, k and lse:
//
//   P = exp(scale q k^T - lse)   dP = dO v^T   dS = P (dP - delta)   delta = rowsum(dO o)
//   dq = scale dS k: a block has queries and walks over keys; it also writes delta, for the other kernel
//   dk = scale dS^T q, dv = P^T dO: a block has keys and walks over the queries of its group of heads
//
// One writer per gradient, so no atomics and always the same bits, at the price of seven products for five.
// Of the side that is walked over, the tile needed first and last (k, or q) has two places in shared memory;
// the other's next one comes while the last product runs. A Rung is as in cuda_tiled_forward.cuh.
// Floor: q, k, v, o, dO once in, dq, dk, dv once out; 10 D operations per seen pair and head.
#pragma once

#include "ops/attention/tiled/matmul.cuh"

namespace kiln::tiled {

template <class T>
struct BackwardRows {
  HeadRows<T> q, k, v, o, dout, dq, dk, dv;
  const float* lse;  // [B, H, Tq]
  float* delta;      // [B, H, Tq]
  float* dq_sums;    // [B, Tq, H * D], of a rung that adds to dq by atomics
  Sequences sequences;
};

template <class T>
BackwardRows<T> backward_rows(const AttentionBackward& b) {
  const int64_t D = b.p.D;
  auto* delta = reinterpret_cast<float*>(b.workspace.raw());
  return {flash::head_rows<T>(b.q, D),
          flash::head_rows<T>(b.k, D),
          flash::head_rows<T>(b.v, D),
          flash::head_rows<T>(b.o, D),
          flash::head_rows<T>(b.dout, D),
          flash::head_rows<T>(b.dq.tensor, D, b.dq.accumulate),
          flash::head_rows<T>(b.dk.tensor, D, b.dk.accumulate),
          flash::head_rows<T>(b.dv.tensor, D, b.dv.accumulate),
          b.lse.data<float>(),
          delta,
          delta + b.p.batches() * b.p.H * b.p.query_rows(),
          b.sequences};
}

// delta of query i of the sequence, by kPer neighbouring threads; all of them get it.
template <int kPer, class T>
__device__ float make_delta(const AttentionProblem& p, const BackwardRows<T>& rows, const Sequence& at, int h,
                            int i) {
  constexpr int kPack = Pack<T>::kSize;
  const int D = static_cast<int>(p.D), mine = static_cast<int>(threadIdx.x) % kPer;
  float sum = 0;
  if (i < at.Tq) {
    const int row = at.first_query + i;
    const T *o = rows.o.at(at.batch, h, D, row), *dout = rows.dout.at(at.batch, h, D, row);
    if (rows.o.packs && rows.dout.packs) {
      for (int c = mine * kPack; c < D; c += kPer * kPack) {
        const Pack<T> x = load_pack(o + c), y = load_pack(dout + c);
#pragma unroll
        for (int k = 0; k < kPack; ++k) sum += x[k] * y[k];
      }
    } else {
      for (int c = mine; c < D; c += kPer) sum += static_cast<float>(o[c]) * static_cast<float>(dout[c]);
    }
  }
#pragma unroll
  for (int other = 1; other < kPer; other *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, other);
  return sum;
}

// exp(scale s - lse): the difference is rounded once, and small where the probability is not.
__device__ inline float probability(float score, float scale, float lse) {
  return exp2_fast((score * scale - lse) * kLog2E);
}

template <class T, TileShape kShape>
struct QueryMemory {
  Tile<T, kShape.width, kShape.rows> q, dout;
  Tile<T, kShape.width, kShape.columns> k[2], v;
  Weights<kShape> ds;
  float lse[kShape.rows], delta[kShape.rows];
};

template <class Rung, class T, class Tiles>
__global__ void __launch_bounds__(Tiles::kShape.threads(), Tiles::kShape.blocks)
    tiled_grad_query_kernel(AttentionProblem p, BackwardRows<T> rows) {
  constexpr TileShape kShape = Tiles::kShape;
  constexpr int kThreads = kShape.threads(), kKeys = kShape.columns, kPer = kThreads / kShape.rows;
  static_assert(kPer >= 1 && kThreads % kShape.rows == 0);
  constexpr bool kAsync = Rung::kAsync;
  extern __shared__ __align__(16) unsigned char memory[];
  auto& m = *reinterpret_cast<QueryMemory<T, kShape>*>(memory);
  const Lane<kShape> lane;
  const int D = static_cast<int>(p.D);
  const int tiles = static_cast<int>((p.Tq + kShape.rows - 1) / kShape.rows);
  const int block = static_cast<int>(blockIdx.x), heads = static_cast<int>(p.B * p.H);
  const int H = static_cast<int>(p.H), i0 = (tiles - 1 - block / heads) * kShape.rows;  // the longest first
  const int h = block % heads % H, hkv = h / static_cast<int>(p.group());
  const Sequence at(p, rows.sequences, block % heads / H);
  if (i0 >= at.Tq) return;
  const int last = i0 + kShape.rows < at.Tq ? i0 + kShape.rows - 1 : at.Tq - 1;
  const int keys = Rung::kSkip ? at.visible(last) : at.Tk;
  const int steps = (keys + kKeys - 1) / kKeys;
  const int unmasked = Rung::kSplit ? at.visible(i0) / kKeys : 0;
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
    arrive<kAsync>();
    if (t + 1 < steps) load_keys(m.k[(t + 1) % 2], rows.k, t + 1);
    if constexpr (kAsync) close_copies();
    Values<kShape> s, dp;
    multiply_rows<kShape>(s, m.q, k, lane, D);
    multiply_rows<kShape>(dp, m.dout, m.v, lane, D);
    __syncthreads();  // v has been read by all
    if (t + 1 < steps) load_keys(m.v, rows.v, t + 1);
    if constexpr (kAsync) close_copies();

    const Seen<false> seen(at, i0, t * kKeys);
    const bool masked = !Rung::kSplit || t >= unmasked;
#pragma unroll
    for (int i = 0; i < kShape.per_lane; ++i) {
      const float lse = m.lse[lane.row(i)], delta = m.delta[lane.row(i)];
#pragma unroll
      for (int j = 0; j < kKeys / kShape.lanes; ++j) {
        const float ds = probability(s[i][j], p.scale, lse) * (dp[i][j] - delta);
        s[i][j] = masked && !seen(lane.row(i), lane.column(j)) ? 0.0f : ds;
      }
    }
    multiply_columns<kShape>(masked, dq, m.ds, s, k, lane, seen);
  }
  if constexpr (kAsync) wait_for_copies<0>();
  store(rows.dq, at.batch, h, D, at.first_query + i0, at.end_query(), dq, lane, [&](int) { return p.scale; });
}

template <class T, TileShape kShape>
struct KeyMemory {
  Tile<T, kShape.width, kShape.rows> k, v;
  Tile<T, kShape.width, kShape.columns> q[2], dout;
  Weights<kShape> weights;  // P^T, then dS^T
  float lse[2][kShape.columns], delta[2][kShape.columns];
};

// What an atomic rung adds to dq of the tile's queries: dS k, with dS^T as all warps have left it. Each warp
// takes as many queries as it has keys. In whatever order blocks come, so bits may differ from run to run.
template <TileShape kShape, class K, class S>
__device__ void add_to_queries(const AttentionProblem& p, float* dq_sums, int b, int h, int i0, int j0,
                               const Weights<kShape>& ds, const K& k, const Lane<kShape>& lane,
                               const S& seen) {
  static_assert(kShape.rows == kShape.columns);
  // A key past the last is zeros, but its weight may be infinite.
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
    float* to = dq_sums + ((b * p.Tq + query) * p.H + h) * p.D;
#pragma unroll
    for (int m = 0; m < kQuads<kShape>; ++m) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int c = lane.channel(m) + n;
        if (c < p.D) atomicAdd(to + c, part(dq.at[i][m], n));
      }
    }
  }
}

template <class Rung, class T, class Tiles>
__global__ void __launch_bounds__(Tiles::kShape.threads(), Tiles::kShape.blocks)
    tiled_grad_key_kernel(AttentionProblem p, BackwardRows<T> rows) {
  constexpr TileShape kShape = Tiles::kShape;
  constexpr int kThreads = kShape.threads(), kQueries = kShape.columns;
  static_assert(kThreads >= kQueries);
  constexpr bool kAsync = Rung::kAsync;
  extern __shared__ __align__(16) unsigned char memory[];
  auto& m = *reinterpret_cast<KeyMemory<T, kShape>*>(memory);
  const Lane<kShape> lane;
  const int D = static_cast<int>(p.D);
  const int block = static_cast<int>(blockIdx.x), heads = static_cast<int>(p.B * p.Hkv);
  const int Hkv = static_cast<int>(p.Hkv), group = static_cast<int>(p.group());
  const int j0 = block / heads * kShape.rows;  // the first are seen by most
  const int hkv = block % heads % Hkv;
  const Sequence at(p, rows.sequences, block % heads / Hkv);
  if (j0 >= at.Tk) return;
  const int ahead = at.Tk - at.Tq, first_seen = Rung::kSkip && at.causal && j0 > ahead ? j0 - ahead : 0;
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
    arrive<kAsync>();
    if (t + 1 < steps) load_query(t + 1);
    if constexpr (kAsync) close_copies();
    const Seen<true> seen(at, i0, j0);
    const bool masked =
        !Rung::kSplit || i0 + kQueries > at.Tq || (at.causal && j0 + kShape.rows - 1 > i0 + ahead);
    Values<kShape> s;
    multiply_rows<kShape>(s, m.k, q, lane, D);
#pragma unroll
    for (int j = 0; j < kQueries / kShape.lanes; ++j) {
      const float lse = m.lse[t % 2][lane.column(j)];
#pragma unroll
      for (int i = 0; i < kShape.per_lane; ++i) {
        const float weight = probability(s[i][j], p.scale, lse);
        s[i][j] = masked && !seen(lane.row(i), lane.column(j)) ? 0.0f : weight;
      }
    }
    multiply_columns<kShape>(masked, dv, m.weights, s, m.dout, lane, seen);

    Values<kShape> dp;
    multiply_rows<kShape>(dp, m.v, m.dout, lane, D);
    __syncthreads();  // dout has been read by all
    if (t + 1 < steps) load_dout(t + 1);
    if constexpr (kAsync) close_copies();
#pragma unroll
    for (int j = 0; j < kQueries / kShape.lanes; ++j) {
      const float delta = m.delta[t % 2][lane.column(j)];
#pragma unroll
      for (int i = 0; i < kShape.per_lane; ++i) {
        const float ds = s[i][j] * (dp[i][j] - delta);
        s[i][j] = masked && !seen(lane.row(i), lane.column(j)) ? 0.0f : ds;
      }
    }
    multiply_columns<kShape>(masked, dk, m.weights, s, q, lane, seen);
    if constexpr (Rung::kAtomic) {
      __syncthreads();  // dS^T of all warps
      add_to_queries<kShape>(p, rows.dq_sums, at.batch, head_at(t), i0, j0, m.weights, m.k, lane, seen);
    }
  }
  if constexpr (kAsync) wait_for_copies<0>();
  const int first = at.first_key + j0, end = at.end_key();
  if (rows.dk.base != nullptr)
    store(rows.dk, at.batch, hkv, D, first, end, dk, lane, [&](int) { return p.scale; });
  if (rows.dv.base != nullptr)
    store(rows.dv, at.batch, hkv, D, first, end, dv, lane, [](int) { return 1.0f; });
}

template <class Rung, class T, class Tiles>
void run_grad_query(RankContext& ctx, const AttentionBackward& b) {
  constexpr TileShape kShape = Tiles::kShape;
  static_assert(sizeof(QueryMemory<T, kShape>) <= backward_bytes(kShape, sizeof(T)));
  const AttentionProblem& p = b.p;
  launch(tiled_grad_query_kernel<Rung, T, Tiles>, Grid(blocks_for(p.Tq, kShape.rows) * p.B * p.H),
         kShape.threads(), sizeof(QueryMemory<T, kShape>), cuda_stream(ctx), p, backward_rows<T>(b));
}

template <class Rung, class T, class Tiles>
void run_grad_key(RankContext& ctx, const AttentionBackward& b) {
  constexpr TileShape kShape = Tiles::kShape;
  static_assert(sizeof(KeyMemory<T, kShape>) <= backward_bytes(kShape, sizeof(T)));
  const AttentionProblem& p = b.p;
  launch(tiled_grad_key_kernel<Rung, T, Tiles>, Grid(blocks_for(p.Tk, kShape.rows) * p.B * p.Hkv),
         kShape.threads(), sizeof(KeyMemory<T, kShape>), cuda_stream(ctx), p, backward_rows<T>(b));
}

template <class Rung, class T, class Tiles>
void run_backward(RankContext& ctx, const AttentionBackward& b) {
  run_grad_query<Rung, T, Tiles>(ctx, b);
  if (b.dk.wanted() || b.dv.wanted()) run_grad_key<Rung, T, Tiles>(ctx, b);
}

}  // namespace kiln::tiled
