// flash, forward: a block has 64 queries of one head, a warp 16 of them, and walks over the keys 64 at a
// time. Scores and probabilities live in registers; the running maximum and sum of each query rescale what
// was summed so far (online softmax). Keys and values of the next tile are copied while this one is worked
// on. Tiles that no query of the block sees are skipped, and only tiles on the border are masked.
// Floor: q, k, v once in, o and lse once out; 4 B H D operations per seen pair on the tensor cores.
#include "ops/attention/cuda_flash_tiles.cuh"

namespace kiln {
namespace {

using namespace flash;

template <class T, int kD>
struct ForwardMemory {
  Tile<T, kD> q;  // o on the way out
  Tile<T, kD> k[2], v[2];
  WeightScratch<T> scratch[kWarps];
};

// What a warp keeps of its 16 queries; a thread has two of them, g and g + 8.
template <int kD>
struct Queries {
  TileSums o[kD / 8];
  float top[2] = {-INFINITY, -INFINITY};  // of the scores so far, unscaled
  float sum[2] = {0, 0};                  // this thread's share
};

// Scores to probabilities, against the maximum so far.
template <int kD>
__device__ void online_softmax(Queries<kD>& mine, TileSums (&s)[kNTiles], float scale_log2) {
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
      mine.o[n].at[2 * half] *= keep;
      mine.o[n].at[2 * half + 1] *= keep;
    }
  }
}

template <class T, int kD>
struct ForwardRows {
  HeadRows<T> q, k, v, o;
  float* lse;  // [B, H, Tq]
};

template <class T, int kD>
__global__ void __launch_bounds__(kBlock, kD > 80 ? 2 : 3)
    flash_forward_kernel(AttentionProblem p, ForwardRows<T, kD> rows) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& m = *reinterpret_cast<ForwardMemory<T, kD>*>(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, col = lane % 4 * 2;
  const int D = static_cast<int>(p.D);
  // The last queries see the most keys: they go first, so that the short ones fill the gaps at the end.
  const int64_t tiles = (p.Tq + kTile - 1) / kTile, heads = p.B * p.H;
  const int64_t i0 = (tiles - 1 - blockIdx.x / heads) * kTile;
  const int64_t h = blockIdx.x % heads % p.H, b = blockIdx.x % heads / p.H, hkv = h / p.group();
  const int64_t last = i0 + kTile < p.Tq ? i0 + kTile - 1 : p.Tq - 1;
  const int64_t limit = p.visible(last);           // keys that any query of the block sees
  const int64_t unmasked = p.visible(i0) / kTile;  // tiles that all of them see whole
  const int steps = static_cast<int>((limit + kTile - 1) / kTile);

  load_tile(m.q, rows.q, b, h, D, i0, p.Tq);
  if (steps > 0) {
    load_tile(m.k[0], rows.k, b, hkv, D, 0, p.Tk);
    load_tile(m.v[0], rows.v, b, hkv, D, 0, p.Tk);
  }
  close_copies();

  Queries<kD> mine;
  const float scale_log2 = p.scale * kLog2E;
  for (int t = 0; t < steps; ++t) {
    const int64_t j0 = static_cast<int64_t>(t) * kTile;
    if (t + 1 < steps) {
      load_tile(m.k[(t + 1) % 2], rows.k, b, hkv, D, j0 + kTile, p.Tk);
      load_tile(m.v[(t + 1) % 2], rows.v, b, hkv, D, j0 + kTile, p.Tk);
    }
    close_copies();
    wait_for_copies<1>();
    __syncthreads();

    TileSums s[kNTiles];
    multiply_rows(s, m.q, warp * 16, m.k[t % 2]);
    const Border<false> seen(p, i0 + warp * 16, j0);
    const bool masked = t >= unmasked;
    if (masked) {
#pragma unroll
      for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (!seen(g + e / 2 * 8, n * 8 + col + e % 2)) s[n].at[e] = -INFINITY;
        }
      }
    }
    online_softmax(mine, s, scale_log2);
    if (masked && !all_finite(m.v[t % 2])) {
      write_scratch(m.scratch[warp], s);
      multiply_columns_seen<T, kD>(mine.o, m.scratch[warp], m.v[t % 2], seen);
    } else {
      multiply_columns<T, kD>(mine.o, s, m.v[t % 2]);
    }
    __syncthreads();  // before this stage is overwritten
  }

  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = mine.sum[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    factor[half] = sum == 0 ? 0.0f : 1.0f / sum;  // NaN goes through
    const int64_t i = i0 + warp * 16 + g + half * 8;
    if (col == 0 && i < p.Tq) {
      rows.lse[(b * p.H + h) * p.Tq + i] = sum == 0 ? -INFINITY : mine.top[half] * p.scale + logf(sum);
    }
  }
  if (steps == 0) wait_for_copies<0>();
  __syncthreads();  // q has been read by all, or not at all
  store_rows(rows.o, b, h, D, i0, p.Tq, mine.o, factor[0], factor[1], m.q);
}

}  // namespace

void attention_cuda_flash_forward(RankContext& ctx, const AttentionForward& f) {
  const AttentionProblem& p = f.p;
  with_tensor_core_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_tile_width(p.D, [&](auto width) {
      constexpr int kD = decltype(width)::value;
      const ForwardRows<T, kD> rows{head_rows<T>(f.q, p.D), head_rows<T>(f.k, p.D), head_rows<T>(f.v, p.D),
                                    head_rows<T>(f.o, p.D), f.lse.data<float>()};
      launch(flash_forward_kernel<T, kD>, Grid(blocks_for(p.Tq, kTile) * p.B * p.H), kBlock,
             sizeof(ForwardMemory<T, kD>), cuda_stream(ctx), p, rows);
    });
  });
}

}  // namespace kiln
