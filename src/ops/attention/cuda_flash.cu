// flash by mma.sync: every GPU since Ampere.
#include "ops/attention/cuda_flash_ampere.cuh"
#include "ops/attention/cuda_flash_backward.cuh"
#include "ops/attention/cuda_flash_forward.cuh"

namespace kiln {

void attention_cuda_flash_forward(RankContext& ctx, const AttentionForward& f) {
  flash::forward<flash::Ampere>(ctx, f);
}
void attention_cuda_flash_backward(RankContext& ctx, const AttentionBackward& b) {
  flash::backward<flash::Ampere>(ctx, b);
}

}  // namespace kiln
