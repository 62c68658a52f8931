// How flash_hopper's forward writes o and lse: through shared memory and the copy engine; row by row where
// that would reach into the next sequence, or where something was not a number.
#pragma once

#include "ops/attention/cuda_hopper_forward_memory.cuh"

namespace kiln::hopper {

// The running softmax of a thread's two queries of its warp's sixteen, g and g + 8.
struct RunningSoftmax {
  float top[2] = {-INFINITY, -INFINITY};  // of the scores so far, unscaled
  float sum[2] = {0, 0};                  // this thread's share

  // Scores to probabilities; `keep` is what the sums so far must be multiplied by.
  template <int kTiles>
  __device__ void take(TileSums (&s)[kTiles], float scale_log2, float (&keep)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = top[half];
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
        most = fmaxf(most, fmaxf(s[n].at[2 * half], s[n].at[2 * half + 1]));  // NaN shows in the sum
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      const float shift = most == -INFINITY ? 0.0f : most * scale_log2;  // no key seen yet: 2^-Inf = 0
      keep[half] = exp2_fast(top[half] * scale_log2 - shift);
      top[half] = most;
      float added = 0;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          s[n].at[e] = exp2_fast(s[n].at[e] * scale_log2 - shift);
          added += s[n].at[e];
        }
      }
      sum[half] = sum[half] * keep[half] + added;
    }
  }
};

// Whether a warpgroup's rows are also those of the next sequence, which the copy engine would overwrite.
template <class Shape, class Part>
__device__ bool goes_beyond(const ForwardArguments<typename Shape::T>& a, const ForwardMemory<Shape>& m,
                            const Part& at, int group) {
  return Shape::kVaried && at.first + group * 64 + 64 > a.sizes(m).Tq;
}

// Then, at the end, they are stored row by row.
template <class Shape>
__device__ void store_singly(const ForwardArguments<typename Shape::T>& a, const ForwardMemory<Shape>& m) {
  constexpr int kPacks = Shape::kD / 8;
  const Sizes& z = a.sizes(m);
  const auto at = a.template part<Shape>(m, 0);
  const int warp = static_cast<int>(threadIdx.x) / 32 - 4;
  if (!goes_beyond<Shape>(a, m, at, warp / 4)) return;
  __syncwarp();
  for (int n = static_cast<int>(threadIdx.x) % 32; n < 16 * kPacks; n += 32) {
    const int row = warp * 16 + n / kPacks, i = at.first + row, c = n % kPacks * 8;
    if (i < z.Tq && c < z.D)
      store_pack(a.o_rows.at(at.b, at.h, z.D, z.first_query + i) + c, load_pack(m.q[0].at(row, c)));
  }
}

// o and lse of round r's part, through the memory of its q.
template <class Shape>
__device__ void write_output(const ForwardArguments<typename Shape::T>& a, ForwardMemory<Shape>& m, int r,
                             const RunningSoftmax& softmax, TileSums (&o)[Shape::kD / 8]) {
  using T = typename Shape::T;
  const AttentionProblem& p = a.p;
  const auto at = m.part[r % Shape::kParts];
  const int group = static_cast<int>(threadIdx.x) / 128 - 1, warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, col = lane % 4 * 2;
  const int own = group * 64 + warp * 16;
  auto& tile = m.q[r % Shape::kParts];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = softmax.sum[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const float factor = 1.0f / sum;  // NaN goes through
    const int i = at.first + own + g + half * 8;
    if (col == 0 && i < a.sizes(m).Tq)
      a.lse[a.stat(a.sizes(m), at.b, at.h, i)] =
          sum == 0 ? -INFINITY : softmax.top[half] * p.scale + logf(sum);
#pragma unroll
    for (int c = 0; c < Shape::kD / 8; ++c) {
      // A query that sees no key has zeros, also where a masked value made its sums NaN.
      o[c].at[2 * half] = sum == 0 ? 0.0f : o[c].at[2 * half] * factor;
      o[c].at[2 * half + 1] = sum == 0 ? 0.0f : o[c].at[2 * half + 1] * factor;
      *reinterpret_cast<uint32_t*>(tile.at(own + g + half * 8, c * 8 + col)) =
          two_of(o[c].at[2 * half], o[c].at[2 * half + 1], T{});
    }
  }
  if (!all_finite(o) && lane == 0) m.not_finite[own / 16].add(r);
  if (goes_beyond<Shape>(a, m, at, group)) return;
  show_to_products();
  meet(1 + group, 128);
  if (threadIdx.x % 128 == 0) {
    store_rows(a.o, tile, group * 64, at.h, a.sizes(m).first_query + at.first + group * 64, at.b);
    close_stores();
  }
}

// At the end, the rows of a warp's that are not finite. Not where they were noted: what this takes of
// registers the products would miss.
template <class Shape>
__device__ void do_again_carefully(const ForwardArguments<typename Shape::T>& a, ForwardMemory<Shape>& m) {
  using T = typename Shape::T;
  const AttentionProblem& p = a.p;
  const int warp = static_cast<int>(threadIdx.x) / 32 - 4;
  if (threadIdx.x % 128 == 0) wait_for_written_stores();
  meet(1 + warp / 4, 128);
  for (int r = m.not_finite[warp].first; r <= m.not_finite[warp].last; ++r) {
    const auto at = a.template part<Shape>(m, r);
    for (int i = at.first + warp * 16; i < at.first + warp * 16 + 16 && i < a.sizes(m).Tq; ++i) {
      const float lse = a.lse[a.stat(a.sizes(m), at.b, at.h, i)];
      T* row = a.o_rows.at(at.b, at.h, static_cast<int>(p.D), a.sizes(m).first_query + i);
      if (lse == -INFINITY || LaneRow<Shape::kD>::of(row, static_cast<int>(p.D)).finite()) continue;
      careful_output<T, Shape::kD>(a.sizes(m), a.q_rows, a.k_rows, a.v_rows, at.b, at.h, i, lse)
          .put(row, 0, static_cast<int>(p.D), 1.0f, false);
    }
  }
}

}  // namespace kiln::hopper
