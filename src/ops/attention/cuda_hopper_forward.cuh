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
#include "ops/attention/cuda_hopper_parts.h"
#include "ops/attention/hopper_table.h"
#include "ops/cuda_device/tma.cuh"

namespace kiln::hopper {

template <class T_, ForwardTiles kTiles>
struct ForwardShape {
  using T = T_;
  static constexpr int kD = kTiles.width, kGroups = kTiles.groups, kKeys = kTiles.keys,
                       kStages = kTiles.stages;
  static constexpr int kParts = kTiles.parts(), kBlocks = kTiles.blocks();
  static constexpr int kQueries = kTiles.queries(), kThreads = kTiles.threads();
  static constexpr int kRegisters = kTiles.registers(), kCopyRegisters = kTiles.copy_registers();
  static_assert(shares_registers(kGroups, kRegisters, kCopyRegisters, kBlocks));
  static constexpr bool kVaried = false;
};

template <class Shape>
struct ForwardMemory {
  using T = typename Shape::T;
  SwizzledTile<T, Shape::kD, Shape::kQueries> q[Shape::kParts];  // o on the way out
  SwizzledTile<T, Shape::kD, Shape::kKeys> k[Shape::kStages], v[Shape::kStages];
  Signal q_there[Shape::kParts], q_free[Shape::kParts], k_there[Shape::kStages], k_free[Shape::kStages],
      v_there[Shape::kStages], v_free[Shape::kStages];
  QueryPart<Shape::kQueries, Shape::kKeys> part[Shape::kParts];  // whose q these are
  struct Rounds {                                                // none at first
    int first, last;
    __device__ void add(int r) {
      if (last < 0) first = r;
      last = r;
    }
  } not_finite[4 * Shape::kGroups];  // of each warp: it had something that was no number in these, or between

  struct Nothing {};
  [[no_unique_address]] std::conditional_t<Shape::kVaried, Sizes, Nothing> z;  // of the block's sequence

  __device__ void init() {
    for (int i = 0; i < Shape::kParts; ++i) {
      q_there[i].init(1);
      q_free[i].init(Shape::kGroups);
    }
    for (int i = 0; i < Shape::kStages; ++i) {
      k_there[i].init(1);
      v_there[i].init(1);
      k_free[i].init(4 * Shape::kGroups);  // a warp each
      v_free[i].init(4 * Shape::kGroups);
    }
    for (Rounds& rounds : not_finite) rounds = {0, -1};
    show_signals();
  }
};

template <class T>
struct ForwardArguments {
  AttentionProblem p;
  CUtensorMap q, k, v, o;
  HeadRows<const T> q_rows, k_rows, v_rows;
  HeadRows<T> o_rows;
  float* lse;  // [B, H, Tq]
  Sizes z;
  Parts parts;
  Sequences sequences;

  __device__ static int number(int r) {
    return part_number(static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x), r);
  }
  __device__ int64_t stat(const Sizes& its, int b, int h, int i) const {  // the place of a query's lse
    return (b * p.H + h) * p.query_rows() + its.first_query + i;
  }
  template <class Shape>
  __device__ bool has_part(int r) const {
    return Shape::kVaried ? r == 0 : number(r) < parts.count();
  }
  template <class Shape>
  __device__ const Sizes& sizes(const ForwardMemory<Shape>& m) const {
    if constexpr (Shape::kVaried)
      return m.z;
    else
      return z;
  }
  template <class Shape>
  __device__ QueryPart<Shape::kQueries, Shape::kKeys> part(const ForwardMemory<Shape>& m, int r) const {
    return {sizes(m), parts, number(r)};
  }
};

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
  for (int r = 0; a.template has_part<Shape>(r); ++r) {
    const auto at = a.template part<Shape>(m, r);
    const int place = r % Shape::kParts;
    m.q_free[place].wait((r / Shape::kParts % 2) ^ 1);
    m.part[place] = at;
    m.q_there[place].expect(m.q[0].kBytes);
    fetch_tile(m.q[place], a.q, at.h, a.sizes(m).first_query + at.first, at.b, m.q_there[place]);
    for (int tile = at.steps - 1; tile >= 0; --tile, ++fetched) {
      const int stage = fetched % Shape::kStages, phase = fetched / Shape::kStages % 2;
      m.k_free[stage].wait(phase ^ 1);
      m.k_there[stage].expect(m.k[stage].kBytes);
      fetch_tile(m.k[stage], a.k, at.hkv, a.sizes(m).first_key + tile * Shape::kKeys, at.b, m.k_there[stage]);
      m.v_free[stage].wait(phase ^ 1);
      m.v_there[stage].expect(m.v[stage].kBytes);
      fetch_tile(m.v[stage], a.v, at.hkv, a.sizes(m).first_key + tile * Shape::kKeys, at.b, m.v_there[stage]);
    }
  }
}

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

template <class Shape>
__device__ void attend(const ForwardArguments<typename Shape::T>& a, ForwardMemory<Shape>& m) {
  using T = typename Shape::T;
  constexpr int kD = Shape::kD, kKeys = Shape::kKeys, kStages = Shape::kStages, kParts = Shape::kParts;
  const int group = static_cast<int>(threadIdx.x) / 128 - 1;
  const int lane = static_cast<int>(threadIdx.x) % 32;

  TileSums o[kD / 8], s[kKeys / 8];
  TileA weights[kKeys / 16];
  RunningSoftmax softmax;
  float keep[2];
  int r = 0, taken = 0;     // parts and tiles of keys that were begun before
  int whole = 0, tile = 0;  // of the part: its whole tiles, and the tile at hand
  const auto begin_part = [&] {
    m.q_there[r % kParts].wait(r / kParts % 2);
    whole = m.part[r % kParts].whole;
    tile = m.part[r % kParts].steps - 1;
  };
  const auto begin_scores = [&] {
    m.k_there[taken % kStages].wait(taken / kStages % 2);
    const uint64_t q = m.q[r % kParts].rows_from(group * 64), k = m.k[taken % kStages].rows_from(0);
    begin_products();
#pragma unroll
    for (int c = 0; c < kD / 16; ++c) add_product<T>(c, s, q + m.q[0].step(c), k + m.k[0].step(c));
    close_products();
  };
  bool begun = false;  // o of this part: the first product overwrites the last part's
  const auto begin_output = [&](int tile) {
    m.v_there[tile % kStages].wait(tile / kStages % 2);
    const uint64_t v = m.v[tile % kStages].columns_from(0);
    begin_products();
#pragma unroll
    for (int c = 0; c < kKeys / 16; ++c)
      multiply_add<T, true>(o, weights[c], v + m.v[0].across_step(c), c > 0 || begun ? 1 : 0);
    close_products();
    begun = true;
  };
  const auto take_scores = [&] {
    settle(s);
    if (lane == 0) m.k_free[taken % kStages].arrive();
    if (tile >= whole) {
      const int first =
          m.part[r % kParts].first + group * 64 + static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4;
      const int limit[2] = {a.sizes(m).visible(first) - tile * kKeys,
                            a.sizes(m).visible(first + 8) - tile * kKeys};
      hide(s, limit);
    }
    softmax.take(s, a.z.scale_log2, keep);
  };
  const auto end_output = [&](int tile) {
    wait_for_products<0>();
    settle(o);
    if (lane == 0) m.v_free[tile % kStages].arrive();
  };
  const auto as_weights = [&] {
#pragma unroll
    for (int c = 0; c < kKeys / 16; ++c) weights[c] = flash::as_a<T>(s[2 * c], s[2 * c + 1]);
  };
  // When o of a part has left, the memory of its q is free.
  bool leaving = false;
  const auto free_memory = [&](int part) {
    if (!leaving) return;
    leaving = false;
    if (threadIdx.x % 128 != 0) return;
    wait_for_stores();
    m.q_free[part % kParts].arrive();
  };

  begin_part();
  begin_scores();
  wait_for_products<0>();
  take_scores();
  as_weights();
  bool more = tile > 0 || a.template has_part<Shape>(1);
  while (more) {
    const bool ends = tile == 0;  // the next part's first scores go with this one's last output
    const RunningSoftmax done = softmax;
    ++taken;
    --tile;
    if (ends) {
      free_memory(r - 1);  // the next part's q waits for that
      softmax = {};
      ++r;
      begin_part();
    }
    begin_scores();
    begin_output(taken - 1);
    more = tile > 0 || a.template has_part<Shape>(r + 1);
    if (!ends) free_memory(r - 1);
    wait_for_products<1>();
    take_scores();
    end_output(taken - 1);
    as_weights();
    if (ends) {
      write_output<Shape>(a, m, r - 1, done, o);
      leaving = true;
      begun = false;
    }
#pragma unroll
    for (int c = 0; c < kD / 8; ++c) {
#pragma unroll
      for (int e = 0; e < 4; ++e) o[c].at[e] *= keep[e / 2];
    }
  }
  begin_output(taken);
  end_output(taken);
  write_output<Shape>(a, m, r, softmax, o);
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    hopper_forward_kernel(const __grid_constant__ ForwardArguments<typename Shape::T> a) {
#ifdef KILN_HOPPER_CODE
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& m = *reinterpret_cast<ForwardMemory<Shape>*>(memory);
  if (threadIdx.x == 0) {
    m.init();
    if constexpr (Shape::kVaried) {
      m.z = a.z;
      m.z.enter_tile(a.p, a.sequences, Shape::kKeys, Shape::kQueries, a.parts.place(a.number(0)).tile);
    }
  }
  __syncthreads();
  if constexpr (Shape::kVaried) {  // a block has one part, or none
    const int first = a.template part<Shape>(m, 0).first;
    if (first < 0 || first >= a.sizes(m).Tq) return;
  }
  if (threadIdx.x < 128) {
    give_registers<Shape::kCopyRegisters>();
    if (threadIdx.x == 0) fetch_forward(a, m);
  } else {
    take_registers<Shape::kRegisters>();
    attend(a, m);
    if constexpr (Shape::kVaried) store_singly<Shape>(a, m);
    do_again_carefully(a, m);
  }
#endif
}

}  // namespace kiln::hopper
