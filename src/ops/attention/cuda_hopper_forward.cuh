// flash_hopper, forward. A block has up to three warpgroups of 64 queries each, and one more whose single
// thread asks the copy engine for keys and values, 128 at a time, two tiles ahead. A warpgroup begins the
// scores of the next tile and the product of the last one's probabilities with its values together, and
// works out the new probabilities while the second still runs; meanwhile the other warpgroups' products fill
// the tensor cores. Tiles go from the last that is seen to the first, so the masked ones come at the start.
// There are as many blocks as the GPU holds at once. Each takes one part of the queries after the other,
// fetching the next part while it finishes the last; the longest parts are dealt out first, to and fro.
// Floor: 4 B H D operations per seen pair on the tensor cores; and an exponential per pair, of which an SM
// makes 16 a cycle: for heads of 64 that takes as long as the products.
#pragma once

#include "ops/attention/cuda_hopper_careful.cuh"
#include "ops/cuda_device/tma.cuh"

namespace kiln::hopper {

template <class T_, int kD_, int kGroups_, int kKeys_ = 128, int kStages_ = 2>
struct ForwardShape {
  using T = T_;
  static constexpr int kD = kD_, kGroups = kGroups_, kKeys = kKeys_, kStages = kStages_;
  static constexpr int kQueries = 64 * kGroups, kThreads = 128 * (1 + kGroups);
  // Of a thread: an SM's 65,536 shared out.
  static constexpr int kRegisters = kGroups == 2 ? 240 : 160;
  static constexpr int kCopyRegisters = kGroups == 3 ? 32 : 24;
  static_assert(shares_registers(kGroups, kRegisters, kCopyRegisters));
};

template <class Shape>
struct ForwardMemory {
  using T = typename Shape::T;
  SwizzledTile<T, Shape::kD, Shape::kQueries> q[2];  // of two parts in turn; o on the way out
  SwizzledTile<T, Shape::kD, Shape::kKeys> k[Shape::kStages], v[Shape::kStages];
  Signal q_there[2], q_free[2], k_there[Shape::kStages], k_free[Shape::kStages], v_there[Shape::kStages],
      v_free[Shape::kStages];
};

template <class T>
struct ForwardArguments {
  AttentionProblem p;
  CUtensorMap q, k, v, o;
  HeadRows<const T> q_rows, k_rows, v_rows;
  float* lse;  // [B, H, Tq]
  int parts;   // of the work
};

// A part of the work: some queries of one head.
template <class Shape>
struct QueryPart {
  int h, b, hkv;
  int first;  // query
  int steps;  // tiles of keys that any of its queries sees
  int whole;  // of them, tiles that all see whole

  __device__ QueryPart(const AttentionProblem& p, int number) {
    const int heads = static_cast<int>(p.B * p.H), last_tile = static_cast<int>((p.Tq - 1) / Shape::kQueries);
    first = (last_tile - number / heads) * Shape::kQueries;  // the last queries see the most keys
    h = number % heads % static_cast<int>(p.H);
    b = number % heads / static_cast<int>(p.H);
    hkv = h / static_cast<int>(p.group());
    const int64_t last = first + Shape::kQueries < p.Tq ? first + Shape::kQueries - 1 : p.Tq - 1;
    steps = static_cast<int>((p.visible(last) + Shape::kKeys - 1) / Shape::kKeys);
    whole = static_cast<int>(p.visible(first) / Shape::kKeys);
  }
};

// The number of a block's part in round r: to and fro, so that who had a long one has a short one next.
__device__ inline int part_number(int r) {
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  return r * blocks + (r % 2 == 0 ? block : blocks - 1 - block);
}

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

// Scores of keys that a thread's queries do not see become -Inf; limit: the keys of this tile they do.
template <int kTiles>
__device__ void hide(TileSums (&s)[kTiles], const int (&limit)[2]) {
  const int col = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (n * 8 + col + e % 2 >= limit[e / 2]) s[n].at[e] = -INFINITY;
    }
  }
}

template <class Shape>
__device__ void fetch_forward(const ForwardArguments<typename Shape::T>& a, ForwardMemory<Shape>& m) {
  int fetched = 0;  // tiles of keys
  for (int r = 0; part_number(r) < a.parts; ++r) {
    const QueryPart<Shape> at(a.p, part_number(r));
    m.q_free[r % 2].wait((r / 2 % 2) ^ 1);
    m.q_there[r % 2].expect(m.q[0].kBytes);
    fetch_tile(m.q[r % 2], a.q, at.h, at.first, at.b, m.q_there[r % 2]);
    for (int n = 0; n < at.steps; ++n, ++fetched) {
      const int stage = fetched % Shape::kStages, phase = fetched / Shape::kStages % 2;
      const int row = (at.steps - 1 - n) * Shape::kKeys;
      m.k_free[stage].wait(phase ^ 1);
      m.k_there[stage].expect(m.k[stage].kBytes);
      fetch_tile(m.k[stage], a.k, at.hkv, row, at.b, m.k_there[stage]);
      m.v_free[stage].wait(phase ^ 1);
      m.v_there[stage].expect(m.v[stage].kBytes);
      fetch_tile(m.v[stage], a.v, at.hkv, row, at.b, m.v_there[stage]);
    }
  }
}

// Part r of the block's; `taken` tiles of keys were used before. Returns how many this one took.
template <class Shape>
__device__ int attend(const ForwardArguments<typename Shape::T>& a, ForwardMemory<Shape>& m, int r,
                      int taken) {
  const QueryPart<Shape> at(a.p, part_number(r));
  using T = typename Shape::T;
  constexpr int kD = Shape::kD, kKeys = Shape::kKeys;
  const AttentionProblem& p = a.p;
  const int group = static_cast<int>(threadIdx.x) / 128 - 1, warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, col = lane % 4 * 2;
  const int own = group * 64 + warp * 16;  // the warp's first query in the block
  const float scale_log2 = p.scale * kLog2E;
  auto& tile_q = m.q[r % 2];
  const uint64_t q = tile_q.rows_from(group * 64);

  TileSums o[kD / 8], s[kKeys / 8];
  TileA weights[kKeys / 16];
  RunningSoftmax softmax;
  float keep[2];
  const auto begin_scores = [&](int n) {
    const int stage = (taken + n) % Shape::kStages;
    m.k_there[stage].wait((taken + n) / Shape::kStages % 2);
    const uint64_t k = m.k[stage].rows_from(0);
    begin_products();
#pragma unroll
    for (int c = 0; c < kD / 16; ++c) add_product<T>(c, s, q + tile_q.step(c), k + m.k[0].step(c));
    close_products();
  };
  const auto begin_output = [&](int n) {
    const int stage = (taken + n) % Shape::kStages;
    m.v_there[stage].wait((taken + n) / Shape::kStages % 2);
    const uint64_t v = m.v[stage].columns_from(0);
    begin_products();
#pragma unroll
    for (int c = 0; c < kKeys / 16; ++c) multiply_add<T, true>(o, weights[c], v + m.v[0].across_step(c));
    close_products();
  };
  const auto take_scores = [&](int n) {
    const int tile = at.steps - 1 - n;
    if (tile >= at.whole) {
      int limit[2];
#pragma unroll
      for (int half = 0; half < 2; ++half)
        limit[half] = static_cast<int>(p.visible(at.first + own + g + half * 8)) - tile * kKeys;
      hide(s, limit);
    }
    softmax.take(s, scale_log2, keep);
  };
  const auto as_weights = [&] {
#pragma unroll
    for (int c = 0; c < kKeys / 16; ++c) weights[c] = flash::as_a<T>(s[2 * c], s[2 * c + 1]);
  };

  m.q_there[r % 2].wait(r / 2 % 2);
  if (at.steps > 0) {
    begin_scores(0);
    // By now the o of the part before has left, and with it the memory of its q.
    if (threadIdx.x % 128 == 0 && r > 0) {
      wait_for_stores();
      m.q_free[(r - 1) % 2].arrive();
    }
    wait_for_products<0>();
    settle(s);
    if (lane == 0) m.k_free[taken % Shape::kStages].arrive();
    take_scores(0);
    as_weights();
    for (int n = 1; n < at.steps; ++n) {
      begin_scores(n);
      begin_output(n - 1);
      wait_for_products<1>();
      settle(s);
      if (lane == 0) m.k_free[(taken + n) % Shape::kStages].arrive();
      take_scores(n);
      wait_for_products<0>();
      settle(o);
      if (lane == 0) m.v_free[(taken + n - 1) % Shape::kStages].arrive();
#pragma unroll
      for (int c = 0; c < kD / 8; ++c) {
#pragma unroll
        for (int e = 0; e < 4; ++e) o[c].at[e] *= keep[e / 2];
      }
      as_weights();
    }
    begin_output(at.steps - 1);
    wait_for_products<0>();
    settle(o);
    if (lane == 0) m.v_free[(taken + at.steps - 1) % Shape::kStages].arrive();
  } else if (threadIdx.x % 128 == 0 && r > 0) {
    wait_for_stores();
    m.q_free[(r - 1) % 2].arrive();
  }

  float lse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = softmax.sum[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const float factor = 1.0f / sum;  // NaN goes through
    lse[half] = sum == 0 ? -INFINITY : softmax.top[half] * p.scale + logf(sum);
    const int i = at.first + own + g + half * 8;
    if (col == 0 && i < p.Tq) a.lse[(at.b * p.H + at.h) * p.Tq + i] = lse[half];
#pragma unroll
    for (int c = 0; c < kD / 8; ++c) {
      // A query that sees no key has zeros, also where a masked value made its sums NaN.
      o[c].at[2 * half] = sum == 0 ? 0.0f : o[c].at[2 * half] * factor;
      o[c].at[2 * half + 1] = sum == 0 ? 0.0f : o[c].at[2 * half + 1] * factor;
      *reinterpret_cast<uint32_t*>(tile_q.at(own + g + half * 8, c * 8 + col)) =
          two_of(o[c].at[2 * half], o[c].at[2 * half + 1], T{});
    }
  }
  if (!all_finite(o)) {
    __syncwarp();
    for (int row = 0; row < 16; ++row) {
      const int i = at.first + own + row;
      const float row_lse = __shfl_sync(0xffffffffu, row < 8 ? lse[0] : lse[1], row % 8 * 4);
      if (i >= p.Tq || row_lse == -INFINITY) continue;
      careful_output<T, kD>(p, a.q_rows, a.k_rows, a.v_rows, at.b, at.h, i, row_lse)
          .put(tile_q, own + row, 1.0f);
    }
  }
  show_to_products();
  meet(1 + group, 128);
  if (threadIdx.x % 128 == 0) {
    store_rows(a.o, tile_q, group * 64, at.h, at.first + group * 64, at.b);
    close_stores();
  }
  return at.steps;
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    hopper_forward_kernel(const __grid_constant__ ForwardArguments<typename Shape::T> a) {
#ifdef KILN_HOPPER_CODE
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& m = *reinterpret_cast<ForwardMemory<Shape>*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      m.q_there[i].init(1);
      m.q_free[i].init(Shape::kGroups);
    }
    for (int i = 0; i < Shape::kStages; ++i) {
      m.k_there[i].init(1);
      m.v_there[i].init(1);
      m.k_free[i].init(4 * Shape::kGroups);  // a warp each
      m.v_free[i].init(4 * Shape::kGroups);
    }
    show_signals();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    give_registers<Shape::kCopyRegisters>();
    if (threadIdx.x == 0) fetch_forward(a, m);
  } else {
    take_registers<Shape::kRegisters>();
    int taken = 0;  // tiles of keys
    for (int r = 0; part_number(r) < a.parts; ++r) taken += attend(a, m, r, taken);
    wait_for_stores();
  }
#endif
}

}  // namespace kiln::hopper
