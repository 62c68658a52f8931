// flash_hopper, forward: the kernel, and its launch with the tiles that a problem takes.
#pragma once

#include "ops/attention/hopper/forward_mainloop.cuh"
#include "ops/attention/hopper/launch.cuh"
#include "ops/attention/tile_choice.h"

namespace kiln::hopper {

template <ForwardBlockShape Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    hopper_forward_kernel(const __grid_constant__ ForwardParams<typename Shape::T> a) {
#ifdef KILN_HOPPER_CODE
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& m = *reinterpret_cast<ForwardSmem<Shape>*>(memory);
  if (threadIdx.x == 0) {
    m.init();
    if constexpr (Shape::kVarlen) {
      m.z = a.z;
      m.z.enter_query_tile(a.p, a.sequences, Shape::kKeys, Shape::kQueries,
                           a.scheduler.place(a.number(0)).tile);
    }
  }
  __syncthreads();                 // the mbarriers are there, and m.z
  if constexpr (Shape::kVarlen) {  // a CTA has one work tile, or none
    const int first = a.template work_tile<Shape>(m, 0).first;
    if (first < 0 || first >= a.seqlen(m).Tq) return;
  }
  if (threadIdx.x < 128) {
    setmaxnreg_dec<Shape::kProducerRegisters>();
    if (threadIdx.x == 0) load_forward(a, m);
  } else {
    setmaxnreg_inc<Shape::kConsumerRegisters>();
    mma_forward(a, m);
    if constexpr (Shape::kVarlen) store_row_by_row<Shape>(a, m);
    redo_non_finite(a, m);
  }
#endif
}

template <class Shape>
void run_forward(RankContext& ctx, const AttentionForward& f) {
  static_assert(ForwardBlockShape<Shape>,
                "flash_hopper's forward takes a ForwardShape, or the Varlen form of one");
  using T = typename Shape::T;
  const Stream stream = cuda_stream(ctx);  // makes the rank's GPU current
  const AttentionProblem& p = f.p;
  const int at_once = multiprocessors() * Shape::kBlocks;
  const ForwardTileScheduler scheduler(p, Shape::kQueries, at_once);
  const ForwardParams<T> a{.p = p,
                           .q = map_of_heads(layout_of(f.q, p, p.H), Shape::kQueries),
                           .k = map_of_heads(layout_of(f.k, p, p.Hkv), Shape::kKeys),
                           .v = map_of_heads(layout_of(f.v, p, p.Hkv), Shape::kKeys),
                           .o = map_of_heads(layout_of(f.o, p, p.H), 64),  // a warpgroup's rows
                           .q_rows = rows_of<T>(f.q),
                           .k_rows = rows_of<T>(f.k),
                           .v_rows = rows_of<T>(f.v),
                           .o_rows = flash::head_rows<T>(f.o, p.D, false),
                           .lse = f.lse.data<float>(),
                           .z = SeqlenInfo(p),
                           .scheduler = scheduler,
                           .sequences = f.sequences};
  launch(hopper_forward_kernel<Shape>,
         Grid(p.varlen ? scheduler.count() : std::min(scheduler.count(), at_once)), Shape::kThreads,
         sizeof(ForwardSmem<Shape>), stream, a);
}

// The kernel of the table's row kRow or a later one, whichever has the tiles asked for.
template <class T, int kD, std::size_t kRow = 0>
void run_forward_with(RankContext& ctx, const AttentionForward& f, const AttentionTiles& tiles) {
  if constexpr (kRow < std::size(kForwardTiles)) {
    constexpr ForwardTiles kTiles = kForwardTiles[kRow];
    if constexpr (kTiles.width == kD) {
      using Shape = ForwardShape<T, kTiles>;
      static_assert(sizeof(ForwardSmem<Shape>) == kTiles.bytes());
      if (tiles == AttentionTiles{kTiles.queries(), kTiles.keys, kTiles.stages})
        return run_forward<Shape>(ctx, f);
    }
    run_forward_with<T, kD, kRow + 1>(ctx, f, tiles);
  } else {
    throw Error(cat("[attention] flash_hopper has no kernel with tiles of ", tiles.str()));
  }
}

}  // namespace kiln::hopper
