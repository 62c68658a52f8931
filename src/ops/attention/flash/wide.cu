// flash by mma.sync, heads over 128 and up to 256 wide. A file of its own: these kernels take as long to
// compile as all others.
#include "ops/attention/flash/ampere.cuh"
#include "ops/attention/flash/backward.cuh"
#include "ops/attention/flash/forward.cuh"

namespace kiln {

using WideHeads = flash::Widths<160, 192, 256>;

void attention_cuda_flash_wide_forward(RankContext& ctx, const AttentionForward& f) {
  flash::forward<flash::Ampere, WideHeads>(ctx, f);
}
void attention_cuda_flash_wide_backward(RankContext& ctx, const AttentionBackward& b) {
  flash::backward<flash::Ampere, WideHeads>(ctx, b);
}

}  // namespace kiln
