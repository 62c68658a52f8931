// flash by mma.sync: every GPU since Ampere. Heads up to 128 wide; wider ones are in wide.cu.
#include "ops/attention/flash/ampere.cuh"
#include "ops/attention/flash/forward.cuh"
#include "ops/attention/flash/fused_launch.cuh"

namespace kiln {

using NarrowHeads = flash::Widths<32, 64, 80, 96, 128>;

void attention_cuda_flash_forward(RankContext& ctx, const AttentionForward& f) {
  f.p.D <= 128 ? flash::forward<flash::Ampere, NarrowHeads>(ctx, f)
               : attention_cuda_flash_wide_forward(ctx, f);
}
void attention_cuda_flash_backward(RankContext& ctx, const AttentionBackward& b) {
  b.p.D <= 128 ? flash::fused_backward<NarrowHeads>(ctx, b) : attention_cuda_flash_wide_backward(ctx, b);
}

}  // namespace kiln
