// flash's fused backward, its launches: which shape of block, in what order of key blocks, after the kernel
// that makes delta and before the one that rounds dq.
#pragma once

#include "device/cuda/cuda_check.h"
#include "ops/attention/flash/fused_backward.cuh"
#include "ops/attention/hopper/backward_preprocess.cuh"
#include "ops/attention/hopper/backward_workspace.h"

namespace kiln::flash {

// CTAs that the GPU has at once, for orders in which they wait for each other. None, where ranks may share
// it; nor where each key block of a causal problem can have a multiprocessor: alone, each begins at once.
// (Two key blocks to a multiprocessor are not alone: a step then takes 5.3 us for 3.2, and the longest sets
// the time. In serpentine order half as many CTAs make the same steps at the speed of one.)
template <FusedBlockShape Shape>
int ctas_at_once(RankContext& ctx, const AttentionProblem& p, std::size_t shared_bytes) {
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
  static_assert(FusedBlockShape<Shape>, "flash's fused backward takes a FusedShape");
  using T = typename Shape::T;
  const Stream stream = cuda_stream(ctx);  // makes the rank's GPU current
  const AttentionProblem& p = b.p;
  const std::size_t shared_bytes = sizeof(FusedSmem<Shape>);
  static_assert(sizeof(FusedSmem<Shape>) <= flash_fused_backward_bytes(Shape::kD, Shape::kBlock));
  const BackwardWorkspace w(p, Shape::kD, kTile);
  AttentionProblem walked = p;
  if (p.Tk == 0) walked.Tk = 1;  // no keys, no key blocks; the last kernel then writes zeros
  const BackwardTileScheduler scheduler(walked, Shape::kKeys, kTile,
                                        ctas_at_once<Shape>(ctx, p, shared_bytes));
  // Where a multiprocessor must hold several blocks that wait for each other, the first must not come while
  // an earlier kernel's division of its memory leaves no room for the second.
  const Pdl pdl =
      Shape::kBlocks == 1 || scheduler.order == BackwardTileScheduler::Order::single ? Pdl::on : Pdl::off;
  const bool numbered = scheduler.order == BackwardTileScheduler::Order::single && w.padded > 0;

  const auto read_only = [&](const Tensor& t) {
    const HeadRows<T> r = head_rows<T>(t, p.D);
    return HeadRows<const T>{r.base, r.batch_stride, r.row_stride, r.vectorizable};
  };
  const HeadRows<const T> o = read_only(b.o), dout = read_only(b.dout);
  const hopper::DeltaParams<T> d = hopper::delta_params<T>(b, w, o, dout);
  launch(o.vectorizable && dout.vectorizable ? hopper::delta_kernel<T> : hopper::delta_kernel<T, false>,
         Grid(blocks_for(p.batches() * p.H * w.padded * 8, 256)), 256, 0, stream, d);

  const FusedParams<T> a{.p = p,
                         .z = SeqlenInfo(p),
                         .scheduler = scheduler,
                         .q = head_rows<T>(b.q, p.D),
                         .k = head_rows<T>(b.k, p.D),
                         .v = head_rows<T>(b.v, p.D),
                         .dout = head_rows<T>(b.dout, p.D),
                         .dq = head_rows<T>(b.dq.tensor, p.D, b.dq.accumulate),
                         .dk = head_rows<T>(b.dk.tensor, p.D, b.dk.accumulate),
                         .dv = head_rows<T>(b.dv.tensor, p.D, b.dv.accumulate),
                         .lse2 = d.lse2,
                         .delta = d.delta,
                         .padded = d.padded,
                         .dq_accum = reinterpret_cast<float4*>(b.workspace.raw() + w.dq_accum),
                         .late_offset = w.late_offset,
                         .dq_semaphore = d.counters + 1,
                         .ticket = numbered ? d.counters : nullptr,
                         .sequences = b.sequences};
  if (p.Tk > 0)
    launch(pdl, flash_backward_kernel<Shape>, Grid(scheduler.ctas()), Shape::kThreads, shared_bytes, stream,
           a);
  if (b.dq.wanted()) {
    launch(Pdl::on, flash_write_dq_kernel<Shape>, Grid(p.batches() * p.H * w.tiles), Shape::kThreads, 0,
           stream, a);
  }
}

template <class T, int kD>
void run_backward(RankContext& ctx, const AttentionBackward& b) {
  constexpr FlashKeys kKeys = flash_tiles(kD).keys;
  using Shape = FusedShape<T, kD, kKeys>;
  if (flash_few_keys(kKeys, b.p.B * b.p.Hkv, b.p.Tk) || !fits_here(ctx, sizeof(FusedSmem<Shape>)))
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
