// flash_hopper, backward: one kernel makes dq, dk and dv with five products. A block has 128 keys, 64 to each
// of two warpgroups, and walks over the queries that see them; a third warpgroup fetches. Everything is
// transposed (a warpgroup's 64 rows are keys), so that P^T and dS^T are in the registers from which the
// tensor cores take their left operand; for dq, dS^T also goes through shared memory.
//
//   P = exp(scale q k^T - lse)   dP = dO v^T   dS = P (dP - delta)   delta = rowsum(dO o)
//   dv = P^T dO   dk = scale dS^T q   dq = scale sum over the blocks of dS k
//
// The blocks' shares of dq are added in fp32, in a fixed order and so always to the same bits: the last block
// of keys first. It comes first by itself: under a causal mask block j begins with the queries on the
// diagonal, and meets those of block j + 1 a step after it. Block 0 comes last, and writes dq out.
// Floor: 10 B H D operations per seen pair.
#pragma once

#include "ops/attention/cuda_hopper_careful.cuh"
#include "ops/cuda_device/tma.cuh"

namespace kiln::hopper {

template <class T_, int kD_>
struct BackwardShape {
  using T = T_;
  static constexpr int kD = kD_, kKeys = 128, kStages = 2, kThreads = 384;
  static constexpr int kQueries = kD <= 64 ? 128 : 64;
  static constexpr bool kSplitsQueries = kQueries == 128;  // dq between the warpgroups; else its channels
  static constexpr int kRegisters = 240, kCopyRegisters = 24;
};

template <class Shape>
struct BackwardMemory {
  using T = typename Shape::T;
  SwizzledTile<T, Shape::kD, Shape::kKeys> k, v;
  SwizzledTile<T, Shape::kD, Shape::kQueries> q[Shape::kStages], dout[Shape::kStages];
  SwizzledTile<T, Shape::kQueries, Shape::kKeys> ds[2];  // rows are keys
  alignas(16) float lse2[Shape::kStages][Shape::kQueries];
  alignas(16) float delta[Shape::kStages][Shape::kQueries];
  Signal k_there, v_there, q_there[Shape::kStages], q_free[Shape::kStages], dout_there[Shape::kStages],
      dout_free[Shape::kStages];
  int item;
};

template <class T>
struct BackwardArguments {
  AttentionProblem p;
  CUtensorMap q, k, v, dout;
  HeadRows<const T> q_rows, k_rows, v_rows, dout_rows;
  HeadRows<T> dq, dk, dv;     // base null: not wanted
  const float *lse2, *delta;  // [B, H, padded]: lse times log2(e), Inf where a query sees nothing or is none
  int padded;
  float4* dq_sums;  // [B, H, tiles][a tile's sums in the order in which threads hold them]
  int* turns;       // [B, H, tiles, 2]: how many blocks have added their share, for each warpgroup
  int* ticket;      // numbers blocks in the order in which they start; null where all fit at once
};

// Where a block stands. Queries are walked over head by head of the group, tile by tile.
template <class Shape>
struct KeyBlock {
  int hkv, b, j;
  int first_tile, tiles;  // of queries that see it: from, and all there are
  int count, steps;       // tiles of a head, of all heads

  __device__ KeyBlock(const AttentionProblem& p, int item) {
    const int blocks = static_cast<int>((p.Tk + Shape::kKeys - 1) / Shape::kKeys);
    j = blocks - 1 - item % blocks;  // the order in which dq is added: nobody waits for a later item
    hkv = item / blocks % static_cast<int>(p.Hkv);
    b = item / blocks / static_cast<int>(p.Hkv);
    const int64_t ahead = p.Tk - p.Tq, first_key = static_cast<int64_t>(j) * Shape::kKeys;
    const int64_t first_seen = p.causal && first_key > ahead ? first_key - ahead : 0;
    tiles = static_cast<int>((p.Tq + Shape::kQueries - 1) / Shape::kQueries);
    first_tile = static_cast<int>(first_seen / Shape::kQueries);
    count = first_seen < p.Tq ? tiles - first_tile : 0;
    steps = count * static_cast<int>(p.group());
  }
  __device__ int head(const AttentionProblem& p, int n) const {
    return hkv * static_cast<int>(p.group()) + n / count;
  }
  __device__ int tile(int n) const { return first_tile + n % count; }
};

template <class Shape>
__device__ void fetch_backward(const BackwardArguments<typename Shape::T>& a, BackwardMemory<Shape>& m,
                               const KeyBlock<Shape>& at) {
  const int j0 = at.j * Shape::kKeys;
  constexpr int kRowBytes = Shape::kQueries * static_cast<int>(sizeof(float));
  for (int n = 0; n < at.steps; ++n) {
    const int stage = n % Shape::kStages, phase = n / Shape::kStages % 2;
    const int h = at.head(a.p, n), i0 = at.tile(n) * Shape::kQueries;
    const int64_t row = (at.b * a.p.H + h) * a.padded + i0;
    if (n == 0) {
      m.k_there.expect(m.k.kBytes);
      fetch_tile(m.k, a.k, at.hkv, j0, at.b, m.k_there);
    }
    m.q_free[stage].wait(phase ^ 1);
    m.q_there[stage].expect(m.q[stage].kBytes + kRowBytes);
    fetch_tile(m.q[stage], a.q, h, i0, at.b, m.q_there[stage]);
    fetch_bytes(m.lse2[stage], a.lse2 + row, kRowBytes, m.q_there[stage]);
    if (n == 0) {
      m.v_there.expect(m.v.kBytes);
      fetch_tile(m.v, a.v, at.hkv, j0, at.b, m.v_there);
    }
    m.dout_free[stage].wait(phase ^ 1);
    m.dout_there[stage].expect(m.dout[stage].kBytes + kRowBytes);
    fetch_tile(m.dout[stage], a.dout, h, i0, at.b, m.dout_there[stage]);
    fetch_bytes(m.delta[stage], a.delta + row, kRowBytes, m.dout_there[stage]);
  }
}

__device__ inline int turn_at(const int* flag) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}
__device__ inline void add_at(float4* to, const TileSums& c) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(c.at[0]),
               "f"(c.at[1]), "f"(c.at[2]), "f"(c.at[3])
               : "memory");
}

// A warpgroup's share of dq, step by step.
template <class Shape>
struct QueryGradient {
  using T = typename Shape::T;
  const BackwardArguments<T>& a;
  const KeyBlock<Shape>& at;
  int group;
  int* flag = nullptr;  // a turn that is over and not yet given on
  int turn = 0;

  __device__ int barrier() const { return 2 + group; }

  // What was added is given on a step later, when it has long arrived: to wait for it at once would cost the
  // time of a round trip to memory.
  __device__ void give_on() {
    if (flag == nullptr) return;
    meet(barrier(), 128);
    if (threadIdx.x % 128 == 0) {
      __threadfence();
      asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(flag), "r"(turn + 1) : "memory");
    }
    flag = nullptr;
  }

  template <int kTiles>
  __device__ void add(TileSums (&dq)[kTiles], int n) {
    if (a.dq.base == nullptr) return;
    const AttentionProblem& p = a.p;
    const int h = at.head(p, n), tile = at.tile(n);
    const int64_t last = (tile + 1) * Shape::kQueries < p.Tq ? (tile + 1) * Shape::kQueries - 1 : p.Tq - 1;
    turn = static_cast<int>((p.visible(last) - 1) / Shape::kKeys) - at.j;
    const int64_t number = (at.b * p.H + h) * at.tiles + tile;
    int* mine = a.turns + number * 2 + group;
    float4* sums = a.dq_sums + number * (Shape::kQueries * Shape::kD / 4) + group * 8 * 128 +
                   static_cast<int>(threadIdx.x) % 128;
    if (turn > 0) {
      if (threadIdx.x % 128 == 0) {
        while (turn_at(mine) != turn) __nanosleep(20);
      }
      meet(barrier(), 128);
    }
    if (at.j > 0) {
#pragma unroll
      for (int c = 0; c < kTiles; ++c) {
        if (turn == 0) {
          __stcg(sums + c * 128, float4{dq[c].at[0], dq[c].at[1], dq[c].at[2], dq[c].at[3]});
        } else {
          add_at(sums + c * 128, dq[c]);
        }
      }
      flag = mine;
      return;
    }
    if (turn > 0) {
#pragma unroll
      for (int c = 0; c < kTiles; ++c) {
        const float4 others = __ldcg(sums + c * 128);
        dq[c].at[0] += others.x, dq[c].at[1] += others.y, dq[c].at[2] += others.z, dq[c].at[3] += others.w;
      }
    }
    write_out(dq, h, tile);
  }

  template <int kTiles>
  __device__ void write_out(const TileSums (&dq)[kTiles], int h, int tile) {
    const AttentionProblem& p = a.p;
    const int D = static_cast<int>(p.D), warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int first = tile * Shape::kQueries + (Shape::kSplitsQueries ? group * 64 : 0) + warp * 16;
    const int column = Shape::kSplitsQueries ? 0 : group * 64;
    if (!all_finite(dq)) {
      const CarefulGradients<T> careful{p,           a.q_rows, a.k_rows, a.v_rows,
                                        a.dout_rows, a.lse2,   a.delta,  a.padded};
      for (int i = first; i < first + 16 && i < p.Tq; ++i) {
        careful.template of_query<Shape::kD>(at.b, h, i)
            .put(a.dq.at(at.b, h, D, i), column, min(D, column + kTiles * 8), p.scale, a.dq.accumulate);
      }
      return;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = first + lane / 4 + half * 8;
      if (i >= p.Tq) continue;
      T* row = a.dq.at(at.b, h, D, i);
#pragma unroll
      for (int c = 0; c < kTiles; ++c) {
        const int channel = column + c * 8 + lane % 4 * 2;
        if (channel >= D) continue;
        float x = dq[c].at[2 * half] * p.scale, y = dq[c].at[2 * half + 1] * p.scale;
        if (a.dq.accumulate) {
          x += static_cast<float>(row[channel]);
          y += static_cast<float>(row[channel + 1]);
        }
        *reinterpret_cast<uint32_t*>(row + channel) = two_of(x, y, T{});
      }
    }
  }
};

template <class Shape>
__device__ void make_gradients(const BackwardArguments<typename Shape::T>& a, BackwardMemory<Shape>& m,
                               const KeyBlock<Shape>& at) {
  using T = typename Shape::T;
  constexpr int kD = Shape::kD, kQueries = Shape::kQueries, kKeys = Shape::kKeys;
  const AttentionProblem& p = a.p;
  const int group = static_cast<int>(threadIdx.x) / 128 - 1, warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, col = lane % 4 * 2;
  const int own = group * 64 + warp * 16, j0 = at.j * kKeys;  // the warp's first key in the block
  const float scale_log2 = p.scale * kLog2E;
  const int ahead = static_cast<int>(p.Tk - p.Tq);

  TileSums dk[kD / 8], dv[kD / 8];
  QueryGradient<Shape> query_gradient{a, at, group};
  if (at.steps > 0) {
    m.k_there.wait(0);
    m.v_there.wait(0);
  }
  const uint64_t k = m.k.rows_from(group * 64), v = m.v.rows_from(group * 64);
  for (int n = 0; n < at.steps; ++n) {
    const int stage = n % Shape::kStages, phase = n / Shape::kStages % 2, i0 = at.tile(n) * kQueries;
    TileSums s[kQueries / 8], dp[kQueries / 8];
    TileA weights[kQueries / 16];

    m.q_there[stage].wait(phase);
    const uint64_t q = m.q[stage].rows_from(0), dout = m.dout[stage].rows_from(0);
    begin_products();
#pragma unroll
    for (int c = 0; c < kD / 16; ++c) add_product<T>(c, s, k + m.k.step(c), q + m.q[0].step(c));
    close_products();
    m.dout_there[stage].wait(phase);
    begin_products();
#pragma unroll
    for (int c = 0; c < kD / 16; ++c) add_product<T>(c, dp, v + m.v.step(c), dout + m.dout[0].step(c));
    close_products();
    query_gradient.give_on();

    // Queries from `hidden` on see the thread's two keys; all do away from the border.
    const bool masked = j0 + kKeys > p.Tk || (p.causal && j0 + kKeys - 1 > i0 + ahead);
    int hidden[2] = {0, 0};
    if (masked) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = j0 + own + g + half * 8;
        hidden[half] = key >= p.Tk ? kQueries : p.causal ? key - ahead - i0 : 0;
      }
    }
    wait_for_products<1>();
    settle(s);
#pragma unroll
    for (int t = 0; t < kQueries / 8; ++t) {
      const float2 lse2 = *reinterpret_cast<const float2*>(&m.lse2[stage][t * 8 + col]);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        s[t].at[e] = exp2_fast(s[t].at[e] * scale_log2 - (e % 2 == 0 ? lse2.x : lse2.y));
        if (masked && t * 8 + col + e % 2 < hidden[e / 2]) s[t].at[e] = 0;
      }
    }
#pragma unroll
    for (int c = 0; c < kQueries / 16; ++c) weights[c] = flash::as_a<T>(s[2 * c], s[2 * c + 1]);
    const uint64_t dout_columns = m.dout[stage].columns_from(0), q_columns = m.q[stage].columns_from(0);
    begin_products();
#pragma unroll
    for (int c = 0; c < kQueries / 16; ++c)
      multiply_add<T, true>(dv, weights[c], dout_columns + m.dout[0].across_step(c));
    close_products();
    wait_for_products<1>();
    settle(dp);
#pragma unroll
    for (int t = 0; t < kQueries / 8; ++t) {
      const float2 delta = *reinterpret_cast<const float2*>(&m.delta[stage][t * 8 + col]);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        dp[t].at[e] = s[t].at[e] * (dp[t].at[e] - (e % 2 == 0 ? delta.x : delta.y));
        if (masked && t * 8 + col + e % 2 < hidden[e / 2]) dp[t].at[e] = 0;
      }
    }
    TileA gradients[kQueries / 16];
    auto& ds = m.ds[n % 2];
#pragma unroll
    for (int c = 0; c < kQueries / 16; ++c) {
      gradients[c] = flash::as_a<T>(dp[2 * c], dp[2 * c + 1]);
      store_tile(ds.at(own + lane % 16, c * 16 + lane / 16 * 8), gradients[c]);
    }
    show_to_products();
    meet(1, 256);  // whoever has come here has read the ds before last: there are two in turn

    const auto add_query_gradient = [&](auto& dq) {
      const uint64_t left = ds.columns_from(Shape::kSplitsQueries ? group : 0);
      const uint64_t right = m.k.columns_from(Shape::kSplitsQueries ? 0 : group);
      begin_products();
#pragma unroll
      for (int c = 0; c < kKeys / 16; ++c)
        add_product<T, true, true>(c, dq, left + ds.across_step(c), right + m.k.across_step(c));
      close_products();
#pragma unroll
      for (int c = 0; c < kQueries / 16; ++c)
        multiply_add<T, true>(dk, gradients[c], q_columns + m.q[0].across_step(c));
      close_products();
      wait_for_products<1>();
      settle(dv);
      settle(dq);
      if (lane == 0) m.dout_free[stage].arrive();
      query_gradient.add(dq, n);
    };
    if (kD <= 64 || kD == 128 || group == 0) {
      TileSums dq[8];
      add_query_gradient(dq);
    } else if constexpr (kD > 64 && kD < 128) {
      TileSums dq[(kD - 64) / 8];
      add_query_gradient(dq);
    }
    wait_for_products<0>();
    settle(dk);
    if (lane == 0) m.q_free[stage].arrive();
  }
  query_gradient.give_on();

  meet(1, 256);  // k and v have been read by all, and can take dk and dv on their way out
  const int D = static_cast<int>(p.D);
  if (all_finite(dk) && all_finite(dv)) {
    if (a.dk.base != nullptr)
      flash::store_strip(a.dk, at.b, at.hkv, D, j0 + own, p.Tk, dk, p.scale, p.scale, m.k, own);
    if (a.dv.base != nullptr)
      flash::store_strip(a.dv, at.b, at.hkv, D, j0 + own, p.Tk, dv, 1.0f, 1.0f, m.v, own);
    return;
  }
  const CarefulGradients<T> careful{p, a.q_rows, a.k_rows, a.v_rows, a.dout_rows, a.lse2, a.delta, a.padded};
  for (int j = j0 + own; j < j0 + own + 16 && j < p.Tk; ++j) {
    LaneRow<kD> row_dk, row_dv;
    careful.template of_key<kD>(at.b, at.hkv, j, row_dk, row_dv);
    if (a.dk.base != nullptr) row_dk.put(a.dk.at(at.b, at.hkv, D, j), 0, D, p.scale, a.dk.accumulate);
    if (a.dv.base != nullptr) row_dv.put(a.dv.at(at.b, at.hkv, D, j), 0, D, 1.0f, a.dv.accumulate);
  }
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    hopper_backward_kernel(const __grid_constant__ BackwardArguments<typename Shape::T> a) {
#ifdef KILN_HOPPER_CODE
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& m = *reinterpret_cast<BackwardMemory<Shape>*>(memory);
  if (threadIdx.x == 0) {
    m.k_there.init(1);
    m.v_there.init(1);
    for (int i = 0; i < Shape::kStages; ++i) {
      m.q_there[i].init(1);
      m.dout_there[i].init(1);
      m.q_free[i].init(8);  // a warp each
      m.dout_free[i].init(8);
    }
    show_signals();
    m.item = a.ticket != nullptr ? atomicAdd(a.ticket, 1) : static_cast<int>(blockIdx.x);
  }
  __syncthreads();
  const KeyBlock<Shape> at(a.p, m.item);
  if (threadIdx.x < 128) {
    give_registers<Shape::kCopyRegisters>();
    if (threadIdx.x == 0) fetch_backward(a, m, at);
  } else {
    take_registers<Shape::kRegisters>();
    make_gradients(a, m, at);
  }
#endif
}

// delta, and lse as the backward wants it, for rows up to `padded`; eight threads to a query. Also sets the
// counters that the backward begins with to zero.
template <class T>
struct DeltaArguments {
  AttentionProblem p;
  HeadRows<const T> o, dout;
  const float* lse;
  float *lse2, *delta;
  int padded;
  int* counters;
  int64_t counter_count;
};

template <class T>
__global__ void __launch_bounds__(256) hopper_delta_kernel(const __grid_constant__ DeltaArguments<T> a) {
  const AttentionProblem& p = a.p;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x, at = thread / 8;
  for (int64_t c = thread; c < a.counter_count; c += static_cast<int64_t>(gridDim.x) * 256) a.counters[c] = 0;
  const int64_t head = at / a.padded, i = at % a.padded;
  if (head >= p.B * p.H) return;  // all eight threads of it
  const int D = static_cast<int>(p.D);
  float sum = 0;
  if (i < p.Tq) {
    const T* o = a.o.at(head / p.H, head % p.H, D, i);
    const T* dout = a.dout.at(head / p.H, head % p.H, D, i);
    for (int c = static_cast<int>(thread % 8) * 8; c < D; c += 64) {
      const Pack<T> x = load_pack(o + c), y = load_pack(dout + c);
#pragma unroll
      for (int k = 0; k < 8; ++k) sum += x[k] * y[k];
    }
  }
  const unsigned eight = 0xffu << (threadIdx.x % 32 / 8 * 8);
#pragma unroll
  for (int step = 1; step < 8; step *= 2) sum += __shfl_xor_sync(eight, sum, step);
  if (thread % 8 != 0) return;
  const float lse = i < p.Tq ? a.lse[head * p.Tq + i] : -INFINITY;
  a.delta[at] = sum;
  a.lse2[at] = lse == -INFINITY ? INFINITY : lse * kLog2E;
}

}  // namespace kiln::hopper
