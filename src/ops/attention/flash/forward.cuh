// flash, forward: a block has 64 or 128 queries of one head and walks over the keys 64 at a time.
// Scores and probabilities live in registers; the running maximum and sum of each query rescale what was
// summed so far (online softmax). Keys and values of the next tile are copied while this one is worked on.
// Tiles that no query of the block sees are skipped, and only tiles on the border are masked. Where blocks
// would be few, each takes one part of the keys (flash_split.h), and a second kernel joins the parts.
// Floor: q, k, v once in, o and lse once out; 4 B H D operations per seen pair on the tensor cores.
#pragma once

#include "ops/attention/flash/combine.cuh"
#include "ops/attention/flash/flash_split.h"
#include "ops/attention/tile_choice.h"

namespace kiln::flash {

template <class Engine, class T, int kD, int kQueries>
struct ForwardMemory {
  static constexpr int kWarps = kQueries / 16 / Engine::template kStrips<kD, kQueries>;
  typename Engine::template Tile<T, kD, kQueries> q;  // o on the way out
  typename Engine::template Tile<T, kD> k[2], v[2];
  WeightScratch<T> scratch[kWarps];
};

// What a thread keeps of a strip's queries: it has two of them, g and g + 8.
template <int kD>
struct Queries {
  float top[2] = {-INFINITY, -INFINITY};  // of the scores so far, unscaled
  float sum[2] = {0, 0};                  // this thread's share
};

// Scores to probabilities, against the maximum so far.
template <int kD>
__device__ void online_softmax(Queries<kD>& mine, TileSums (&o)[kD / 8], TileSums (&s)[kNTiles],
                               float scale_log2) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float top = mine.top[half];
#pragma unroll
    for (int n = 0; n < kNTiles; ++n)
      top = fmaxf(top, fmaxf(s[n].at[2 * half], s[n].at[2 * half + 1]));  // NaN loses, and shows in the sum
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    const float shift = top == -INFINITY ? 0.0f : top * scale_log2;  // no key seen yet: all stay 2^-Inf = 0
    const float keep = exp2_fast(mine.top[half] * scale_log2 - shift);
    mine.top[half] = top;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; ++e) {
        s[n].at[e] = exp2_fast(s[n].at[e] * scale_log2 - shift);
        sum += s[n].at[e];
      }
    }
    mine.sum[half] = mine.sum[half] * keep + sum;
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
  KeyParts parts;
};

// Heads up to 32 in blocks of 64 queries spill 16 bytes in bf16: without, a thread would have 184 registers
// and a multiprocessor room for 4 blocks, not 6. Which is faster has not been measured.
template <class Engine, class T, int kD, int kQueries>
__global__ void __launch_bounds__(2 * kQueries / Engine::template kStrips<kD, kQueries>, kD > 128 ? 1 : 0)
    flash_forward_kernel(AttentionProblem p, ForwardRows<T> rows) {
  using Memory = ForwardMemory<Engine, T, kD, kQueries>;
  constexpr int kM = Engine::template kStrips<kD, kQueries>, kThreads = 32 * Memory::kWarps;
  extern __shared__ __align__(16) unsigned char memory[];
  auto& m = *reinterpret_cast<Memory*>(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, col = lane % 4 * 2;
  const int D = static_cast<int>(p.D), own = warp * 16 * kM;  // the warp's first query in the block
  // The last queries see the most keys: they go first, so that the short ones fill the gaps at the end.
  const int tiles = static_cast<int>((p.Tq + kQueries - 1) / kQueries), heads = static_cast<int>(p.B * p.H);
  const int block = static_cast<int>(blockIdx.x), H = static_cast<int>(p.H);
  const int i0 = (tiles - 1 - block / (heads * rows.parts.count)) * kQueries;
  const int part = block / heads % rows.parts.count;
  const int h = block % heads % H, hkv = h / static_cast<int>(p.group());
  const Sequence at(p, rows.sequences, block % heads / H);
  if (i0 >= at.Tq) return;
  const int last = i0 + kQueries < at.Tq ? i0 + kQueries - 1 : at.Tq - 1;
  const int steps = (at.visible(last) + kTile - 1) / kTile;  // that any query sees
  const int unmasked = at.visible(i0) / kTile;               // that all of them see whole
  const auto cut = [&](int n) { return static_cast<int>(int64_t{steps} * n / rows.parts.count); };
  const int begin = cut(part), end = cut(part + 1);
  const auto load_keys = [&](int t) {
    load_tile<kThreads>(m.k[t % 2], rows.k, at.batch, hkv, D, at.first_key + t * kTile, at.end_key());
    load_tile<kThreads>(m.v[t % 2], rows.v, at.batch, hkv, D, at.first_key + t * kTile, at.end_key());
  };

  load_tile<kThreads>(m.q, rows.q, at.batch, h, D, at.first_query + i0, at.end_query());
  if (begin < end) load_keys(begin);
  close_copies();

  TileSums o[kM][kD / 8];
  Queries<kD> mine[kM];
  const float scale_log2 = p.scale * kLog2E;
  for (int t = begin; t < end; ++t) {
    if (t + 1 < end) load_keys(t + 1);
    close_copies();
    wait_for_copies<1>();
    Engine::show();
    __syncthreads();

    TileSums s[kM][kNTiles] = {};
    Engine::template multiply_rows<kM>(s, m.q, own, m.k[t % 2]);
    Engine::finish(s);
    const bool masked = t >= unmasked;
#pragma unroll
    for (int strip = 0; strip < kM; ++strip) {
      if (masked) {
        const Border<false> seen(at, i0 + own + 16 * strip, t * kTile);
#pragma unroll
        for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            if (!seen(g + e / 2 * 8, n * 8 + col + e % 2)) s[strip][n].at[e] = -INFINITY;
          }
        }
      }
      online_softmax<kD>(mine[strip], o[strip], s[strip], scale_log2);
    }
    if (masked && !all_finite(m.v[t % 2])) {
#pragma unroll
      for (int strip = 0; strip < kM; ++strip) {
        const Border<false> seen(at, i0 + own + 16 * strip, t * kTile);
        write_scratch(m.scratch[warp], s[strip]);
        multiply_columns_seen<T>(o[strip], m.scratch[warp], m.v[t % 2], seen);
      }
    } else {
      Engine::template multiply_columns<T, kM, kD>(o, s, m.v[t % 2]);
      Engine::finish(o);
    }
    __syncthreads();  // before this stage is overwritten
  }
  if (begin == end) wait_for_copies<0>();
  __syncthreads();  // q has been read by all, or not at all

  float* lse = rows.parts.count > 1 ? rows.parts.lse + part * rows.parts.rows : rows.lse;
#pragma unroll
  for (int strip = 0; strip < kM; ++strip) {
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = mine[strip].sum[half];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      factor[half] = sum == 0 ? 0.0f : 1.0f / sum;  // NaN goes through
      const int i = i0 + own + 16 * strip + g + half * 8;
      if (col == 0 && i < at.Tq) {
        lse[at.stat(p, h, i)] = sum == 0 ? -INFINITY : mine[strip].top[half] * p.scale + logf(sum);
      }
    }
    const int first = i0 + own + 16 * strip;
    if (rows.parts.count > 1) {
      store_part(rows.parts.o + (part * rows.parts.rows + at.stat(p, h, first)) * kD, at.Tq - first, D,
                 o[strip], factor[0], factor[1]);
      continue;
    }
    store_strip(rows.o, at.batch, h, D, at.first_query + first, at.end_query(), o[strip], factor[0],
                factor[1], m.q, own + 16 * strip);
  }
}

template <class Engine, class T, int kD, int kQueries>
void run_forward(RankContext& ctx, const AttentionForward& f) {
  const AttentionProblem& p = f.p;
  using Memory = ForwardMemory<Engine, T, kD, kQueries>;
  static_assert(sizeof(Memory) <= flash_forward_bytes(flash_tiles(kD)));
  const SplitWorkspace split(p);
  KeyParts parts;
  // Of another variant, which gave its work to this one and has no memory for parts: one.
  if (split.parts > 1 && f.workspace.defined() &&
      f.workspace.numel() >= static_cast<int64_t>(split.bytes())) {
    auto* memory = reinterpret_cast<float*>(f.workspace.raw());
    parts = {static_cast<int>(split.parts), split.rows, memory, memory + split.lse};
  }
  const ForwardRows<T> rows{head_rows<T>(f.q, p.D),
                            head_rows<T>(f.k, p.D),
                            head_rows<T>(f.v, p.D),
                            head_rows<T>(f.o, p.D),
                            f.lse.data<float>(),
                            f.sequences,
                            parts};
  const Stream stream = cuda_stream(ctx);
  launch(flash_forward_kernel<Engine, T, kD, kQueries>,
         Grid(blocks_for(p.Tq, kQueries) * p.B * p.H * parts.count), 32 * Memory::kWarps, sizeof(Memory),
         stream, p, rows);
  if (parts.count > 1) {
    launch(Start::early, flash_join_kernel<T, kD>, Grid(blocks_for(parts.rows * (kD / 8), 128)), 128, 0,
           stream, p, parts, rows.o, rows.lse);
  }
}

template <class Engine, class Of>
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
