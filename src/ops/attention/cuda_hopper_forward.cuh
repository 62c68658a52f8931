// flash_hopper, forward. A block has up to three warpgroups of 64 queries each, and one more whose single
// thread asks the copy engine for keys and values, 128 at a time, two tiles ahead. A warpgroup begins the
// scores of the next tile and the product of the last one's probabilities with its values together, and
// works out the new probabilities while the second still runs; meanwhile the other warpgroups' products fill
// the tensor cores. Tiles go from the last that is seen to the first, so the masked ones come at the start.
// There are as many blocks as the GPU holds at once; to each the tiles of all its parts (cuda_hopper_parts.h)
// are one row, and a part's first scores go with the last output of the part before. Floor: 4 B H D
// operations per seen pair on the tensor cores; and an exponential per pair, of which an SM makes 16 a cycle:
// for heads of 64 that takes as long as the products.
#pragma once

#include "ops/attention/cuda_hopper_output.cuh"

namespace kiln::hopper {

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
