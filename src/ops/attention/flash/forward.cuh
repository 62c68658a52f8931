// flash, forward: a block has 64 or 128 queries of one head and walks over the keys 64 at a time.
// Scores and probabilities live in registers; the running maximum and sum of each query rescale what was
// summed so far (online softmax). Keys and values of the next tile are copied by cp.async while this one is
// worked on: two stages, the copies of tile t + 1 committed as one group before tile t is waited for. Tiles
// that no query of the block sees are skipped, and only tiles on the border are masked. Where blocks would be
// few, each takes one split of the keys (flash_split.h), and a second kernel combines them (combine.cuh).
// Roofline: q, k, v once in, o and lse once out; 4 B H D operations per seen pair on the tensor cores.
#pragma once

#include "ops/attention/flash/combine.cuh"
#include "ops/attention/flash/flash_split.h"
#include "ops/attention/tile_choice.h"

namespace kiln::flash {

template <MmaEngine Engine, class T, int kD, int kQueries>
struct ForwardSmem {
  static constexpr int kWarps = kQueries / 16 / Engine::template kStrips<kD, kQueries>;
  typename Engine::template Tile<T, kD, kQueries> q;  // o on the way out
  typename Engine::template Tile<T, kD> k[2], v[2];
  ProbScratch<T> scratch[kWarps];
};

// Of a thread's two queries of a strip, g and g + 8.
template <int kD>
struct OnlineSoftmax {
  float top[2] = {-INFINITY, -INFINITY};  // of the scores so far, unscaled
  float sum[2] = {0, 0};                  // this thread's part
};

// Scores to probabilities, against the maximum so far.
template <int kD>
__device__ void online_softmax(OnlineSoftmax<kD>& softmax, FragAcc (&o)[kD / 8], FragAcc (&s)[kNTiles],
                               float scale_log2) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float top = softmax.top[half];
#pragma unroll
    for (int n = 0; n < kNTiles; ++n)
      top = fmaxf(top, fmaxf(s[n].at[2 * half], s[n].at[2 * half + 1]));  // NaN loses, and shows in the sum
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    const float shift = top == -INFINITY ? 0.0f : top * scale_log2;  // no key seen yet: all stay 2^-Inf = 0
    const float keep = exp2_fast(softmax.top[half] * scale_log2 - shift);
    softmax.top[half] = top;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; ++e) {
        s[n].at[e] = exp2_fast(s[n].at[e] * scale_log2 - shift);
        sum += s[n].at[e];
      }
    }
    softmax.sum[half] = softmax.sum[half] * keep + sum;
#pragma unroll
    for (int n = 0; n < kD / 8; ++n) {
      o[n].at[2 * half] *= keep;
      o[n].at[2 * half + 1] *= keep;
    }
  }
}

template <class T>
struct ForwardRows {
  HeadRows<T> q, k, v, o;
  float* lse;  // [B, H, Tq]
  Sequences sequences;
  SplitKv split_kv;
};

// Heads up to 32 in blocks of 64 queries spill 16 bytes in bf16: without, a thread would have 184 registers
// and a multiprocessor room for 4 blocks, not 6. Which is faster has not been measured.
template <MmaEngine Engine, class T, int kD, int kQueries>
__global__ void __launch_bounds__(2 * kQueries / Engine::template kStrips<kD, kQueries>, kD > 128 ? 1 : 0)
    flash_forward_kernel(AttentionProblem p, ForwardRows<T> rows) {
  using Memory = ForwardSmem<Engine, T, kD, kQueries>;
  constexpr int kM = Engine::template kStrips<kD, kQueries>, kThreads = 32 * Memory::kWarps;
  extern __shared__ __align__(16) unsigned char memory[];
  auto& m = *reinterpret_cast<Memory*>(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, col = lane % 4 * 2;
  const int D = static_cast<int>(p.D), own = warp * 16 * kM;  // the warp's first query in the block
  // The last queries see the most keys: they go first, so that the short ones fill the gaps at the end.
  const int tiles = static_cast<int>((p.Tq + kQueries - 1) / kQueries), heads = static_cast<int>(p.B * p.H);
  const int block = static_cast<int>(blockIdx.x), H = static_cast<int>(p.H);
  const int i0 = (tiles - 1 - block / (heads * rows.split_kv.count)) * kQueries;
  const int split = block / heads % rows.split_kv.count;
  const int h = block % heads % H, hkv = h / static_cast<int>(p.group());
  const Sequence at(p, rows.sequences, block % heads / H);
  if (i0 >= at.Tq) return;
  const int last = i0 + kQueries < at.Tq ? i0 + kQueries - 1 : at.Tq - 1;
  const int steps = (at.visible(last) + kTile - 1) / kTile;  // that any query sees
  const int unmasked = at.visible(i0) / kTile;               // that all of them see whole
  const auto cut = [&](int n) { return static_cast<int>(int64_t{steps} * n / rows.split_kv.count); };
  const int begin = cut(split), end = cut(split + 1);
  const auto load_keys = [&](int t) {
    load_tile<kThreads>(m.k[t % 2], rows.k, at.batch, hkv, D, at.first_key + t * kTile, at.end_key());
    load_tile<kThreads>(m.v[t % 2], rows.v, at.batch, hkv, D, at.first_key + t * kTile, at.end_key());
  };

  load_tile<kThreads>(m.q, rows.q, at.batch, h, D, at.first_query + i0, at.end_query());
  if (begin < end) load_keys(begin);
  cp_async_commit();

  FragAcc o[kM][kD / 8];
  OnlineSoftmax<kD> softmax[kM];
  const float scale_log2 = p.scale * kLog2E;
  for (int t = begin; t < end; ++t) {
    if (t + 1 < end) load_keys(t + 1);
    cp_async_commit();
    cp_async_wait<1>();  // this thread's copies of tile t; those of t + 1 are under way
    Engine::show();
    __syncthreads();  // all threads'

    FragAcc s[kM][kNTiles] = {};
    Engine::template gemm_nt<kM>(s, m.q, own, m.k[t % 2]);
    Engine::finish(s);
    const bool masked = t >= unmasked;
#pragma unroll
    for (int strip = 0; strip < kM; ++strip) {
      if (masked) {
        const TileMask<false> seen(at, i0 + own + 16 * strip, t * kTile);
#pragma unroll
        for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            if (!seen(g + e / 2 * 8, n * 8 + col + e % 2)) s[strip][n].at[e] = -INFINITY;
          }
        }
      }
      online_softmax<kD>(softmax[strip], o[strip], s[strip], scale_log2);
    }
    if (masked && !all_finite(m.v[t % 2])) {
#pragma unroll
      for (int strip = 0; strip < kM; ++strip) {
        const TileMask<false> seen(at, i0 + own + 16 * strip, t * kTile);
        write_scratch(m.scratch[warp], s[strip]);
        gemm_nn_seen<T>(o[strip], m.scratch[warp], m.v[t % 2], seen);
      }
    } else {
      Engine::template gemm_nn<T, kM, kD>(o, s, m.v[t % 2]);
      Engine::finish(o);
    }
    __syncthreads();  // all have read tile t, before the copies of t + 2 overwrite it
  }
  if (begin == end) cp_async_wait<0>();
  __syncthreads();  // q has been read by all, or not at all

  float* lse = rows.split_kv.count > 1 ? rows.split_kv.lse + split * rows.split_kv.rows : rows.lse;
#pragma unroll
  for (int strip = 0; strip < kM; ++strip) {
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = softmax[strip].sum[half];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      factor[half] = sum == 0 ? 0.0f : 1.0f / sum;  // NaN goes through
      const int i = i0 + own + 16 * strip + g + half * 8;
      if (col == 0 && i < at.Tq) {
        lse[at.stat(p, h, i)] = sum == 0 ? -INFINITY : softmax[strip].top[half] * p.scale + logf(sum);
      }
    }
    const int first = i0 + own + 16 * strip;
    if (rows.split_kv.count > 1) {
      store_split(rows.split_kv.o + (split * rows.split_kv.rows + at.stat(p, h, first)) * kD, at.Tq - first,
                  D, o[strip], factor[0], factor[1]);
      continue;
    }
    store_strip(rows.o, at.batch, h, D, at.first_query + first, at.end_query(), o[strip], factor[0],
                factor[1], m.q, own + 16 * strip);
  }
}

template <MmaEngine Engine, class T, int kD, int kQueries>
void run_forward(RankContext& ctx, const AttentionForward& f) {
  const AttentionProblem& p = f.p;
  using Memory = ForwardSmem<Engine, T, kD, kQueries>;
  static_assert(sizeof(Memory) <= flash_forward_bytes(flash_tiles(kD)));
  const SplitWorkspace split(p);
  SplitKv split_kv;
  if (split.splits > 1) {
    auto* memory = reinterpret_cast<float*>(f.workspace.raw());
    split_kv = {
        .count = static_cast<int>(split.splits), .rows = split.rows, .o = memory, .lse = memory + split.lse};
  }
  const ForwardRows<T> rows{.q = head_rows<T>(f.q, p.D),
                            .k = head_rows<T>(f.k, p.D),
                            .v = head_rows<T>(f.v, p.D),
                            .o = head_rows<T>(f.o, p.D),
                            .lse = f.lse.data<float>(),
                            .sequences = f.sequences,
                            .split_kv = split_kv};
  const Stream stream = cuda_stream(ctx);
  launch(flash_forward_kernel<Engine, T, kD, kQueries>,
         Grid(blocks_for(p.Tq, kQueries) * p.B * p.H * split_kv.count), 32 * Memory::kWarps, sizeof(Memory),
         stream, p, rows);
  if (split_kv.count > 1) {
    launch(Pdl::on, flash_combine_kernel<T, kD>, Grid(blocks_for(split_kv.rows * (kD / 8), 128)), 128, 0,
           stream, p, split_kv, rows.o, rows.lse);
  }
}

template <MmaEngine Engine, class Of>
void forward(RankContext& ctx, const AttentionForward& f) {
  const AttentionProblem& p = f.p;
  with_tensor_core_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_tile_width(Of{}, p.D, [&](auto width) {
      constexpr int kD = decltype(width)::value;
      constexpr FlashTiles kTiles = flash_tiles(kD);
      if constexpr (kTiles.few_queries != kTiles.queries) {
        if (chosen_tiles(ctx.attention_choices(), "flash", p).queries == kTiles.few_queries)
          return run_forward<Engine, T, kD, kTiles.few_queries>(ctx, f);
      }
      run_forward<Engine, T, kD, kTiles.queries>(ctx, f);
    });
  });
}

}  // namespace kiln::flash
