// flash by wgmma: Hopper.
#include "ops/attention/cuda_flash_backward.cuh"
#include "ops/attention/cuda_flash_forward.cuh"
#include "ops/attention/cuda_flash_hopper.cuh"

namespace kiln {

void attention_cuda_flash_wgmma_forward(RankContext& ctx, const AttentionForward& f) {
  flash::forward<flash::Hopper>(ctx, f);
}
void attention_cuda_flash_wgmma_backward(RankContext& ctx, const AttentionBackward& b) {
  flash::backward<flash::Hopper>(ctx, b);
}

}  // namespace kiln
