// flash, backward in one kernel: scores are made again from q, k and lse, once, and five products make all
// three gradients.
//
//   P = exp(scale q k^T - lse)   dP = dO v^T   dS = P (dP - delta)   delta = rowsum(dO o)
//   dv = P^T dO   dk = scale dS^T q   dq = scale dS k
//
// A block has 64 or 128 keys and walks over the queries that see them, 64 at a time. Everything is transposed
// (a warp's rows are keys), so that P^T and dS^T are in the registers from which the tensor cores take their
// left operand for dv and dk; for dq, dS goes through shared memory. Every block has a share of every dq it
// meets. They are added in fp32 in the order of cuda_hopper_walk.h, each at its turn, and so always to the
// same bits; flags in memory say how many shares a tile has. The wait for a turn, and for the sums to be in
// memory before it is given on, is hidden by the other block of the multiprocessor. A last kernel rounds dq.
// Floor: q, k, v, o, dO once in, dq, dk, dv once out; 10 B H D operations per seen pair. Shares of dq add
// 4 D bytes for each query and lot of keys, in the L2 cache.
#pragma once

#include "device/cuda/cuda_check.h"
#include "ops/attention/cuda_flash_ampere.cuh"
#include "ops/attention/cuda_hopper_delta.cuh"
#include "ops/attention/cuda_hopper_workspace.h"

namespace kiln::flash {

using hopper::Lots;
using hopper::Sizes;

template <class T_, int kD_, int kStrips_>
struct FusedShape {
  using T = T_;
  static constexpr int kD = kD_, kStrips = kStrips_, kThreads = 128;
  static constexpr int kKeys = 64 * kStrips, kOwn = 16 * kStrips;  // of the block, of a warp
  static constexpr int kBlocks = kD * kStrips <= 64 ? 3 : 2;       // of a multiprocessor
  static constexpr int kAtOnce = 32;  // queries of a tile whose scores a warp has in registers
  using Lot = hopper::KeyLot<kKeys, kTile>;
  using Walk = hopper::QueryWalk<Lot>;
};

template <class Shape>
struct FusedMemory {
  using T = typename Shape::T;
  PaddedTile<T, Shape::kD, Shape::kKeys> k, v;  // dk and dv on their way out
  PaddedTile<T, Shape::kD> q[2], dout[2];
  PaddedTile<T, kTile, Shape::kKeys> ds;  // rows are keys
  alignas(16) float lse2[2][kTile];
  alignas(16) float delta[2][kTile];
  int number;  // the block's
  Sizes z;     // of its sequence; here and not in registers, which are full
  // Thread 0's: where a turn is to be given on, and how many shares there are then.
  int* turn_given;
  int shares;
};

template <class T>
struct FusedArguments {
  AttentionProblem p;
  Sizes z;
  Lots lots;
  HeadRows<T> q, k, v, dout, dq, dk, dv;  // base null: not wanted
  const float *lse2, *delta;  // [B, H, padded]: lse times log2(e), Inf where a query sees nothing or is none
  int padded;
  float4* dq_sums;    // [B, H, tiles][a tile's sums in the order in which threads hold them]
  int64_t late_sums;  // how far behind these the late ones lie
  int* turns;         // [B, H, tiles, 2]: how many shares have been added, early and late
  int* ticket;        // numbers blocks in the order in which they start; null where all start at once
  Sequences sequences;

  __device__ int64_t tile_number(const Sizes& its, int b, int h, int tile) const {
    return static_cast<int64_t>(b * its.H + h) * lots.tiles + its.first_tile + tile;
  }
};

// Which pairs of a tile's queries and a lot's keys are seen.
struct SeenPairs {
  int diagonal, queries, keys;

  __device__ SeenPairs(const Sizes& z, int i0, int j0)
      : diagonal(z.causal ? i0 - j0 + z.ahead : 1 << 20), queries(z.Tq - i0), keys(z.Tk - j0) {}
  __device__ bool all(int lot) const { return queries >= kTile && keys >= lot && diagonal >= lot - 1; }
  __device__ bool operator()(int query, int key) const {
    return key <= query + diagonal && query < queries && key < keys;
  }
};

// out += W X over kCount rows of x from `first` on, leaving out every pair that is not seen: a masked value
// must not reach the sum even as 0 * NaN. Slow, and for tiles with something that is not a number.
template <int kCount, class Tile, class Weight, class Seen>
__device__ void multiply_seen(TileSums (&out)[Tile::kWidth / 8], const Tile& x, int first, Weight weight,
                              Seen seen) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
#pragma unroll 1
  for (int r = 0; r < kCount; ++r) {
    const float low = weight(g, r), high = weight(g + 8, r);
    const bool low_seen = seen(g, r), high_seen = seen(g + 8, r);
#pragma unroll
    for (int n = 0; n < Tile::kWidth / 8; ++n) {
      const auto* two = x.at(first + r, n * 8 + 2 * q);
      const float x0 = static_cast<float>(two[0]), x1 = static_cast<float>(two[1]);
      if (low_seen) out[n].at[0] += low * x0, out[n].at[1] += low * x1;
      if (high_seen) out[n].at[2] += high * x0, out[n].at[3] += high * x1;
    }
  }
}

// A warp's [16 kM, 8 kN] sums to the tile, from this row and column on, rounded.
template <class Tile, int kM, int kN>
__device__ void write_strips(Tile& tile, int row, int column, const TileSums (&sums)[kM][kN]) {
  using T = std::remove_reference_t<decltype(*tile.at(0, 0))>;
  const int lane = threadIdx.x % 32, g = lane / 4, col = lane % 4 * 2;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const TileSums& x = sums[m][n];
      T* to = tile.at(row + 16 * m + g, column + n * 8 + col);
      *reinterpret_cast<uint32_t*>(to) = two_of(x.at[0], x.at[1], T{});
      *reinterpret_cast<uint32_t*>(to + 8 * (tile.at(1, 0) - tile.at(0, 0))) = two_of(x.at[2], x.at[3], T{});
    }
  }
}

// Sixteen queries of a step's dq: dS^T, transposed as it is read, times the lot's keys.
template <class T, int kD, int kKeys>
__device__ void multiply_transposed(TileSums (&dq)[kD / 8], const PaddedTile<T, kTile, kKeys>& ds, int query,
                                    const PaddedTile<T, kD, kKeys>& keys) {
  const int lane = threadIdx.x % 32;
#pragma unroll 4
  for (int k = 0; k < kKeys; k += 16) {
    TileA a;
    load_tiles_transposed(a.word, ds.at(k + lane / 16 * 8 + lane % 8, query + lane / 8 % 2 * 8));
#pragma unroll
    for (int n = 0; n < kD / 8; n += 2) {
      uint32_t w[4];
      load_tiles_transposed(w, keys.at(k + lane % 16, n * 8 + lane / 16 * 8));
      multiply_add<T>(dq[n], a, {{w[0], w[1]}});
      multiply_add<T>(dq[n + 1], a, {{w[2], w[3]}});
    }
  }
}

__device__ inline int shares_at(const int* flag) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

// Thread 0 gives a turn on once the shares are in memory. At once, the wait for that would be long; a while
// later it is short, and whoever is next is a step behind anyway.
template <class Shape>
__device__ void give_turn_on(FusedMemory<Shape>& m) {
  if (threadIdx.x != 0 || m.turn_given == nullptr) return;
  __threadfence();
  asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(m.turn_given), "r"(m.shares) : "memory");
  m.turn_given = nullptr;
}

__device__ inline void add_share(float4* to, const TileSums& x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x.at[0]),
               "f"(x.at[1]), "f"(x.at[2]), "f"(x.at[3])
               : "memory");
#else
  auto* one = reinterpret_cast<float*>(to);
#pragma unroll
  for (int e = 0; e < 4; ++e) atomicAdd(one + e, x.at[e]);
#endif
}

// Step by step: tile `tile` of head h's queries, and what the backward needs of each.
template <class Shape>
__device__ void load_queries(FusedMemory<Shape>& m, int stage, const FusedArguments<typename Shape::T>& a,
                             int b, const typename Shape::Walk& at) {
  const Sizes& z = m.z;
  const int first = z.first_query + at.tile * kTile, end = z.first_query + z.Tq;
  load_tile<Shape::kThreads>(m.q[stage], a.q, b, at.h, z.D, first, end);
  load_tile<Shape::kThreads>(m.dout[stage], a.dout, b, at.h, z.D, first, end);
  if (threadIdx.x < 2 * kTile / 4) {
    const int i = static_cast<int>(threadIdx.x) % (kTile / 4) * 4;
    const bool deltas = threadIdx.x >= kTile / 4;
    const int64_t from = static_cast<int64_t>(b * z.H + at.h) * a.padded + z.first_stat + at.tile * kTile + i;
    copy_async(deltas ? &m.delta[stage][i] : &m.lse2[stage][i], (deltas ? a.delta : a.lse2) + from, true);
  }
}

// With two strips a warp, a few words that the walk needs once a step are spilled (4 to 24 bytes).
template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    flash_backward_kernel(const __grid_constant__ FusedArguments<typename Shape::T> a) {
  using T = typename Shape::T;
  constexpr int kD = Shape::kD, kM = Shape::kStrips, kN = Shape::kAtOnce / 8, kKeys = Shape::kKeys;
  extern __shared__ __align__(16) unsigned char memory[];
  auto& m = *reinterpret_cast<FusedMemory<Shape>*>(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, col = lane % 4 * 2;
  const int own = warp * Shape::kOwn;
  if (threadIdx.x == 0) {
    m.turn_given = nullptr;
    m.number = a.ticket != nullptr ? atomicAdd(a.ticket, 1) : static_cast<int>(blockIdx.x);
    m.z = a.z;
    if (a.p.varied) {
      m.z.enter_lot(a.p, a.sequences, kKeys, kTile, a.lots.lots - 1 - m.number % a.lots.per_head);
    }
  }
  __syncthreads();
  const Sizes& z = m.z;

  for (int s = 0;; ++s) {
    const typename Shape::Lot at(z, a.lots, m.number, s);
    if (!at.exists) return;
    if (at.late_twin) continue;
    const float scale_log2 = a.z.scale_log2;
    const int j0 = at.j * kKeys, end_key = z.first_key + z.Tk, steps = at.steps(z);
    load_tile<Shape::kThreads>(m.k, a.k, at.b, at.hkv, z.D, z.first_key + j0, end_key);
    load_tile<Shape::kThreads>(m.v, a.v, at.b, at.hkv, z.D, z.first_key + j0, end_key);
    typename Shape::Walk walk(z, at);
    if (steps > 0) load_queries(m, 0, a, at.b, walk);
    close_copies();

    TileSums dk[kM][kD / 8], dv[kM][kD / 8];
    bool keys_finite = true;
    for (int t = 0; t < steps; ++t, walk.next(at)) {
      if (t + 1 < steps) {
        typename Shape::Walk ahead = walk;
        ahead.next(at);
        load_queries(m, (t + 1) % 2, a, at.b, ahead);
      }
      close_copies();
      wait_for_copies<1>();
      __syncthreads();

      const auto &q = m.q[t % 2], &dout = m.dout[t % 2];
      const SeenPairs seen(z, walk.tile * kTile, j0);
      const bool masked = !seen.all(kKeys);
      const bool careful = masked && !(all_finite(q) & all_finite(dout));
      if (t == 0) keys_finite = all_finite(m.k);
#pragma unroll 1
      for (int first = 0; first < kTile; first += Shape::kAtOnce) {
        if (first > 0) give_turn_on(m);  // of the step before
        TileSums p[kM][kN] = {}, ds[kM][kN] = {};
        Ampere::multiply_rows<kM>(p, m.k, own, q, first);
        Ampere::multiply_rows<kM>(ds, m.v, own, dout, first);
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          const int query = first + n * 8 + col;
          const auto lse2 = *reinterpret_cast<const float2*>(&m.lse2[t % 2][query]);
          const auto delta = *reinterpret_cast<const float2*>(&m.delta[t % 2][query]);
#pragma unroll
          for (int strip = 0; strip < kM; ++strip) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              float &x = p[strip][n].at[e], &y = ds[strip][n].at[e];
              x = exp2_fast(x * scale_log2 - (e % 2 == 0 ? lse2.x : lse2.y));
              y = x * (y - (e % 2 == 0 ? delta.x : delta.y));
            }
          }
        }
        if (masked) {
#pragma unroll
          for (int n = 0; n < kN; ++n) {
#pragma unroll
            for (int strip = 0; strip < kM; ++strip) {
#pragma unroll
              for (int e = 0; e < 4; ++e) {
                if (!seen(first + n * 8 + col + e % 2, own + 16 * strip + g + e / 2 * 8))
                  p[strip][n].at[e] = ds[strip][n].at[e] = 0;
              }
            }
          }
        }
        if (careful) write_strips(m.ds, own, first, p);  // which has the memory until dS comes
        const auto multiply_carefully = [&](TileSums(&out)[kM][kD / 8], const PaddedTile<T, kD>& x) {
          __syncwarp();
#pragma unroll
          for (int strip = 0; strip < kM; ++strip) {
            const int row = own + 16 * strip;
            multiply_seen<Shape::kAtOnce>(
                out[strip], x, first,
                [&](int key, int query) { return static_cast<float>(*m.ds.at(row + key, first + query)); },
                [&](int key, int query) { return seen(first + query, row + key); });
          }
          __syncwarp();
        };
        if (careful)
          multiply_carefully(dv, dout);
        else
          Ampere::multiply_columns<T, kM, kD>(dv, p, dout, first);
        write_strips(m.ds, own, first, ds);
        if (careful)
          multiply_carefully(dk, q);
        else
          Ampere::multiply_columns<T, kM, kD>(dk, ds, q, first);
      }
      if (a.dq.base == nullptr) {
        __syncthreads();  // before this stage is overwritten
        continue;
      }

      __syncthreads();  // dS is there
      TileSums dq[kD / 8];
      if (masked && !keys_finite) {
        multiply_seen<kKeys>(
            dq, m.k, 0,
            [&](int query, int key) { return static_cast<float>(*m.ds.at(key, warp * 16 + query)); },
            [&](int query, int key) { return seen(warp * 16 + query, key); });
      } else {
        multiply_transposed(dq, m.ds, warp * 16, m.k);
      }
      const hopper::Turn mine = at.turn(z, a.lots, walk.tile);
      const int64_t number = a.tile_number(z, at.b, walk.h, walk.tile);
      int* flag = a.turns + number * 2 + (mine.late ? 1 : 0);
      if (lane == 0 && mine.turn > 0) {
        while (shares_at(flag) != mine.turn) __nanosleep(20);
      }
      __syncwarp();
      float4* to = a.dq_sums + (mine.late ? a.late_sums : 0) + number * (kTile * kD / 4) + threadIdx.x;
#pragma unroll
      for (int n = 0; n < kD / 8; ++n) {
        if (n * 8 >= z.D) break;
        if (mine.turn == 0)
          to[n * Shape::kThreads] = {dq[n].at[0], dq[n].at[1], dq[n].at[2], dq[n].at[3]};
        else
          add_share(to + n * Shape::kThreads, dq[n]);
      }
      __syncthreads();  // all shares are added; and before this stage is overwritten
      if (threadIdx.x == 0) m.turn_given = flag, m.shares = mine.turn + 1;
    }
    give_turn_on(m);
    wait_for_copies<0>();
    __syncthreads();
#pragma unroll
    for (int strip = 0; strip < kM; ++strip) {
      const int row = own + 16 * strip, key = z.first_key + j0 + row;
      if (a.dk.base != nullptr)
        store_strip(a.dk, at.b, at.hkv, z.D, key, end_key, dk[strip], z.scale, z.scale, m.k, row);
      if (a.dv.base != nullptr)
        store_strip(a.dv, at.b, at.hkv, z.D, key, end_key, dv[strip], 1.0f, 1.0f, m.v, row);
    }
    __syncthreads();  // before the next lot's keys come
  }
}

// A tile of dq a block: early and late sums, rounded once.
template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads)
    flash_write_dq_kernel(const __grid_constant__ FusedArguments<typename Shape::T> a) {
  constexpr int kD = Shape::kD;
  __shared__ __align__(16) PaddedTile<typename Shape::T, kD> way_out;
  const int64_t number = blockIdx.x;
  const int place = static_cast<int>(number % a.lots.tiles), head = static_cast<int>(number / a.lots.tiles);
  Sizes z = a.z;
  if (a.p.varied) z.enter_tile(a.p, a.sequences, Shape::kKeys, kTile, place);
  const int tile = place - z.first_tile, warp = static_cast<int>(threadIdx.x) / 32;
  if (tile < 0 || tile * kTile >= z.Tq) return;  // nobody's place
  const hopper::Shares shares = Shape::Lot::shares(z, a.lots, tile);
  const float4* sums = a.dq_sums + number * (kTile * kD / 4) + threadIdx.x;
  TileSums dq[kD / 8];
#pragma unroll
  for (int n = 0; n < kD / 8; ++n) {
    if (n * 8 >= z.D) break;
    const float4 early = shares.early > 0 ? sums[n * Shape::kThreads] : float4{};  // else nobody sees any key
    const float4 late = shares.late > 0 ? sums[a.late_sums + n * Shape::kThreads] : float4{};
    dq[n] = {early.x + late.x, early.y + late.y, early.z + late.z, early.w + late.w};
  }
  store_strip(a.dq, head / z.H, head % z.H, z.D, z.first_query + tile * kTile + warp * 16,
              z.first_query + z.Tq, dq, z.scale, z.scale, way_out, warp * 16);
}

// Blocks that the GPU has at once, for orders in which they wait for each other. None, where ranks may share
// it; nor where a causal problem's lots all fit: alone, each begins at once.
template <class Shape>
int blocks_at_once(RankContext& ctx, const AttentionProblem& p, std::size_t shared_bytes) {
  if (ctx.world() > 1 || p.Tq == 0) return 0;
  const auto* kernel = reinterpret_cast<const void*>(flash_backward_kernel<Shape>);
  allow_shared_memory(kernel, shared_bytes);
  int device = 0, multiprocessors = 0, blocks = 0;
  KILN_CUDA_CHECK(cudaGetDevice(&device));
  KILN_CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  KILN_CUDA_CHECK(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, Shape::kThreads, shared_bytes));
  const int64_t fit = int64_t{multiprocessors} * blocks;
  return p.causal && p.B * p.Hkv * blocks_for(p.Tk, Shape::kKeys) <= fit ? 0 : static_cast<int>(fit);
}

template <class Shape>
void run_backward(RankContext& ctx, const AttentionBackward& b) {
  using T = typename Shape::T;
  const Stream stream = cuda_stream(ctx);  // makes the rank's GPU current
  const AttentionProblem& p = b.p;
  const std::size_t shared_bytes = sizeof(FusedMemory<Shape>);
  static_assert(sizeof(FusedMemory<Shape>) <= flash_fused_backward_bytes(Shape::kD, Shape::kStrips));
  const HopperWorkspace w(p, Shape::kD, kTile);
  std::byte* memory = b.workspace.raw();
  auto* lse2 = reinterpret_cast<float*>(memory + w.lse2);
  auto* delta = reinterpret_cast<float*>(memory + w.delta);
  auto* counters = reinterpret_cast<int*>(memory + w.counters);
  const int padded = static_cast<int>(w.padded);
  AttentionProblem walked = p;
  if (p.Tk == 0) walked.Tk = 1;  // no keys, no lots; the last kernel then writes zeros
  const Lots lots(walked, Shape::kKeys, kTile, blocks_at_once<Shape>(ctx, p, shared_bytes));
  const bool numbered = lots.order == Lots::Order::single && w.padded > 0;

  const auto read_only = [&](const Tensor& t) {
    const HeadRows<T> r = head_rows<T>(t, p.D);
    return HeadRows<const T>{r.base, r.batch_stride, r.row_stride, r.packs};
  };
  const HeadRows<const T> o = read_only(b.o), dout = read_only(b.dout);
  const hopper::DeltaArguments<T> d{p,           o,      dout,     b.lse.data<float>(), lse2,
                                    delta,       padded, counters, w.counter_count,     Sizes(p),
                                    b.sequences, kTile};
  launch(o.packs && dout.packs ? hopper::hopper_delta_kernel<T> : hopper::hopper_delta_kernel<T, false>,
         Grid(blocks_for(p.batches() * p.H * w.padded * 8, 256)), 256, 0, stream, d);

  const FusedArguments<T> a{p,
                            Sizes(p),
                            lots,
                            head_rows<T>(b.q, p.D),
                            head_rows<T>(b.k, p.D),
                            head_rows<T>(b.v, p.D),
                            head_rows<T>(b.dout, p.D),
                            head_rows<T>(b.dq.tensor, p.D, b.dq.accumulate),
                            head_rows<T>(b.dk.tensor, p.D, b.dk.accumulate),
                            head_rows<T>(b.dv.tensor, p.D, b.dv.accumulate),
                            lse2,
                            delta,
                            padded,
                            reinterpret_cast<float4*>(memory + w.dq_sums),
                            w.late_sums,
                            counters + 1,
                            numbered ? counters : nullptr,
                            b.sequences};
  if (p.Tk > 0)
    launch(flash_backward_kernel<Shape>, Grid(lots.blocks()), Shape::kThreads, shared_bytes, stream, a);
  if (b.dq.wanted()) {
    launch(flash_write_dq_kernel<Shape>, Grid(p.batches() * p.H * w.tiles), Shape::kThreads, 0, stream, a);
  }
}

template <class T, int kD>
void run_backward(RankContext& ctx, const AttentionBackward& b) {
  constexpr int kStrips = flash_tiles(kD).key_strips;
  if (kStrips > 1 && flash_few_keys(kStrips, b.p.B * b.p.Hkv, b.p.Tk))
    return run_backward<FusedShape<T, kD, 1>>(ctx, b);
  run_backward<FusedShape<T, kD, kStrips>>(ctx, b);
}

template <class Of>
void fused_backward(RankContext& ctx, const AttentionBackward& b) {
  if (b.p.B == 0) return;
  with_tensor_core_type(b.p.dtype, [&](auto zero) {
    with_tile_width(Of{}, b.p.D,
                    [&](auto width) { run_backward<decltype(zero), decltype(width)::value>(ctx, b); });
  });
}

}  // namespace kiln::flash
