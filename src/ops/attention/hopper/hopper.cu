// flash_hopper: attention by TMA and wgmma, for Hopper; which shape of block takes which problem. How it is
// made:
//
//   tiles       hopper_table.h, forward_tile_scheduler.h, backward_tile_scheduler.h
//   forward     forward_launch.cuh, forward_mainloop.cuh (producer and consumers), mask.cuh, softmax.cuh,
//               forward_epilogue.cuh
//   backward    backward_launch.cuh, backward_preprocess.cuh (delta), backward_load.cuh (the producer),
//               backward_mainloop.cuh (the consumers), dq_accumulate.cuh, backward_epilogue.cuh,
//               dq_epilogue.cuh
//   both        seqlen_info.h, non_finite.cuh (the slow path), {forward,backward}_{params,smem}.cuh
#include "ops/attention/hopper/backward_launch.cuh"
#include "ops/attention/hopper/forward_launch.cuh"

namespace kiln {

void attention_cuda_hopper_forward(RankContext& ctx, const AttentionForward& f) {
  const AttentionProblem& p = f.p;
  hopper::with_shape(p, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int kD = decltype(width)::value;
    if (p.varlen)
      return hopper::run_forward<
          hopper::Varlen<hopper::ForwardShape<T, hopper::ForwardTiles{kD, 2, 128, 2}>>>(ctx, f);
    hopper::run_forward_with<T, kD>(ctx, f, chosen_tiles(ctx.attention_choices(), "flash_hopper", p));
  });
}

namespace {

void backward(RankContext& ctx, const AttentionBackward& b, bool atomic) {
  const AttentionProblem& p = b.p;
  hopper::with_shape(p, [&](auto zero, auto width) {
    using Shape = hopper::BackwardShape<decltype(zero), decltype(width)::value>;
    if (p.varlen) return hopper::run_backward<hopper::Varlen<Shape>>(ctx, b, atomic);
    hopper::run_backward<Shape>(ctx, b, atomic);
  });
}

}  // namespace

void attention_cuda_hopper_backward(RankContext& ctx, const AttentionBackward& b) { backward(ctx, b, false); }
void attention_cuda_hopper_atomic_backward(RankContext& ctx, const AttentionBackward& b) {
  backward(ctx, b, true);
}

}  // namespace kiln
