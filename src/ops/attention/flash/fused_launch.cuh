// flash's backward in one kernel, started: which shape of block, in what order of lots, after the kernel that
// makes delta and before the one that rounds dq.
#pragma once

#include "device/cuda/cuda_check.h"
#include "ops/attention/flash/fused_backward.cuh"
#include "ops/attention/hopper/backward_preprocess.cuh"
#include "ops/attention/cuda_hopper_workspace.h"

namespace kiln::flash {

// Blocks that the GPU has at once, for orders in which they wait for each other. None, where ranks may share
// it; nor where each lot of a causal problem can have a multiprocessor: alone, each begins at once. (Two lots
// to a multiprocessor are not alone: a step then takes 5.3 us for 3.2, and the longest lot sets the time. One
// forth and one back for half as many blocks make the same steps at the speed of one.)
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
  const bool alone = p.B * p.Hkv * blocks_for(p.Tk, Shape::kKeys) <= multiprocessors;
  return p.causal && alone ? 0 : multiprocessors * blocks;
}

// Whether the rank's GPU lets a block have so much shared memory.
inline bool fits_here(RankContext& ctx, std::size_t shared_bytes) {
  cuda_stream(ctx);  // makes the rank's GPU current
  int device = 0, most = 0;
  KILN_CUDA_CHECK(cudaGetDevice(&device));
  KILN_CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return shared_bytes <= static_cast<std::size_t>(most);
}

template <class Shape>
void run_backward(RankContext& ctx, const AttentionBackward& b) {
  using T = typename Shape::T;
  const Stream stream = cuda_stream(ctx);  // makes the rank's GPU current
  const AttentionProblem& p = b.p;
  const std::size_t shared_bytes = sizeof(FusedMemory<Shape>);
  static_assert(sizeof(FusedMemory<Shape>) <= flash_fused_backward_bytes(Shape::kD, Shape::kBlock));
  const HopperWorkspace w(p, Shape::kD, kTile);
  std::byte* memory = b.workspace.raw();
  auto* lse2 = reinterpret_cast<float*>(memory + w.lse2);
  auto* delta = reinterpret_cast<float*>(memory + w.delta);
  auto* counters = reinterpret_cast<int*>(memory + w.counters);
  const int padded = static_cast<int>(w.padded);
  AttentionProblem walked = p;
  if (p.Tk == 0) walked.Tk = 1;  // no keys, no lots; the last kernel then writes zeros
  const Lots lots(walked, Shape::kKeys, kTile, blocks_at_once<Shape>(ctx, p, shared_bytes));
  // Where a multiprocessor must hold several blocks that wait for each other, the first must not come while
  // an earlier kernel's division of its memory leaves no room for the second.
  const Start start =
      Shape::kBlocks == 1 || lots.order == Lots::Order::single ? Start::early : Start::in_turn;
  const bool numbered = lots.order == Lots::Order::single && w.padded > 0;

  const auto read_only = [&](const Tensor& t) {
    const HeadRows<T> r = head_rows<T>(t, p.D);
    return HeadRows<const T>{r.base, r.batch_stride, r.row_stride, r.packs};
  };
  const HeadRows<const T> o = read_only(b.o), dout = read_only(b.dout);
  const hopper::DeltaArguments<T> d{p,           o,      dout,     b.lse.data<float>(), lse2,
                                    delta,       padded, counters, w.counter_count,     Sizes(p),
                                    b.sequences, kTile};
  launch(o.packs && dout.packs ? hopper::delta_kernel<T> : hopper::delta_kernel<T, false>,
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
    launch(start, flash_backward_kernel<Shape>, Grid(lots.blocks()), Shape::kThreads, shared_bytes, stream,
           a);
  if (b.dq.wanted()) {
    launch(Start::early, flash_write_dq_kernel<Shape>, Grid(p.batches() * p.H * w.tiles), Shape::kThreads, 0,
           stream, a);
  }
}

template <class T, int kD>
void run_backward(RankContext& ctx, const AttentionBackward& b) {
  constexpr FlashKeys kKeys = flash_tiles(kD).keys;
  using Shape = FusedShape<T, kD, kKeys>;
  if (flash_few_keys(kKeys, b.p.B * b.p.Hkv, b.p.Tk) || !fits_here(ctx, sizeof(FusedMemory<Shape>)))
    return run_backward<FusedShape<T, kD, kFewKeys>>(ctx, b);
  run_backward<Shape>(ctx, b);
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
