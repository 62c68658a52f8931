// flash_hopper, backward: the kernel, and the launches of a pass: delta first, then the gradients, then dq
// where a kernel of its own writes it.
#pragma once

#include "ops/attention/hopper/backward_load.cuh"
#include "ops/attention/hopper/backward_mainloop.cuh"
#include "ops/attention/hopper/backward_preprocess.cuh"
#include "ops/attention/hopper/launch.cuh"

namespace kiln::hopper {

template <BackwardBlockShape Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    hopper_backward_kernel(const __grid_constant__ BackwardParams<typename Shape::T> a) {
#ifdef KILN_HOPPER_CODE
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& m = *reinterpret_cast<BackwardSmem<Shape>*>(memory);
  if (threadIdx.x == 0) m.init();
  pdl_wait();  // for the kernel that makes delta and sets the semaphores to zero
  if (threadIdx.x == 0) {
    m.number = a.ticket != nullptr ? atomicAdd(a.ticket, 1) : static_cast<int>(blockIdx.x);
    if constexpr (Shape::kVarlen) {
      m.z = a.z;
      const int place = m.number % a.scheduler.ctas_per_head;
      m.z.enter_key_block(a.p, a.sequences, Shape::kKeys, Shape::kQueries, place);
    }
  }
  if (threadIdx.x < kMaxKeyBlocks / 32) {
    for (int warp = 0; warp < 8; ++warp)
      m.non_finite_keys[warp][threadIdx.x] = m.non_finite_queries[warp][threadIdx.x] = 0;
  }
  __syncthreads();  // the mbarriers are there, and m.number and m.z
  if (threadIdx.x < 128) {
    setmaxnreg_dec<Shape::kProducerRegisters>();
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x == 0) load_backward(a, m);
    if (threadIdx.x % 32 == 0 && (warp == 1 || warp == 2) && a.dq.base != nullptr) store_dq(a, m, warp - 1);
  } else {
    setmaxnreg_inc<Shape::kConsumerRegisters>();
    int step = 0;
    for (int s = 0; m.key_block(a.seqlen(m), a.scheduler, s).exists; ++s) step = mma_backward(a, m, s, step);
    redo_non_finite(a, m);
  }
#endif
}

template <class Shape>
void run_backward(RankContext& ctx, const AttentionBackward& b, bool atomic) {
  static_assert(BackwardBlockShape<Shape>,
                "flash_hopper's backward takes a BackwardShape, or the Varlen form of one");
  using T = typename Shape::T;
  const Stream stream = cuda_stream(ctx);  // makes the rank's GPU current
  const AttentionProblem& p = b.p;
  const BackwardWorkspace w(p);
  std::byte* dq_accum = b.workspace.raw() + w.dq_accum;
  const DeltaParams<T> d = delta_params<T>(b, w, rows_of<T>(b.o), rows_of<T>(b.dout));
  launch(delta_kernel<T>, Grid(blocks_for(p.batches() * p.H * w.padded * 8, 256)), 256, 0, cuda_stream(ctx),
         d);
  // Ranks may share a GPU; then nobody may wait for a CTA that has not begun.
  const int at_once = ctx.world() > 1 ? 0 : multiprocessors();
  const BackwardTileScheduler scheduler(p, Shape::kKeys, Shape::kQueries, at_once);
  const bool ctas_write_dq = b.dq.wanted() && !atomic && scheduler.ctas_write_dq();
  const BackwardParams<T> a{
      .p = p,
      .z = SeqlenInfo(p),
      .scheduler = scheduler,
      .q = map_of_heads(layout_of(b.q, p, p.H), Shape::kQueries),
      .k = map_of_heads(layout_of(b.k, p, p.Hkv), Shape::kKeys),
      .v = map_of_heads(layout_of(b.v, p, p.Hkv), Shape::kKeys),
      .dout = map_of_heads(layout_of(b.dout, p, p.H), Shape::kQueries),
      .q_rows = rows_of<T>(b.q),
      .k_rows = rows_of<T>(b.k),
      .v_rows = rows_of<T>(b.v),
      .dout_rows = rows_of<T>(b.dout),
      .dq = flash::head_rows<T>(b.dq.tensor, p.D, b.dq.accumulate),
      .dk = flash::head_rows<T>(b.dk.tensor, p.D, b.dk.accumulate),
      .dv = flash::head_rows<T>(b.dv.tensor, p.D, b.dv.accumulate),
      .lse2 = d.lse2,
      .delta = d.delta,
      .padded = d.padded,
      .dq_accum = reinterpret_cast<float4*>(dq_accum),
      .late_offset = w.late_offset,
      .dq_semaphore = d.counters + 1,
      .ticket = scheduler.order == BackwardTileScheduler::Order::single ? d.counters : nullptr,
      .atomic = atomic,
      .ctas_write_dq = ctas_write_dq,
      .sequences = b.sequences};
  if (atomic && b.dq.wanted()) {
    KILN_CUDA_CHECK(cudaMemsetAsync(dq_accum, 0, static_cast<std::size_t>(w.late_offset) * 16,
                                    static_cast<cudaStream_t>(stream.handle)));
  }
  launch(Pdl::on, hopper_backward_kernel<Shape>, Grid(scheduler.ctas()), Shape::kThreads,
         sizeof(BackwardSmem<Shape>), stream, a);
  if (!ctas_write_dq && b.dq.wanted())
    launch(Pdl::on, hopper_write_dq_kernel<Shape>, Grid(2 * p.batches() * p.H * w.tiles), 128, 0, stream, a);
}

}  // namespace kiln::hopper
