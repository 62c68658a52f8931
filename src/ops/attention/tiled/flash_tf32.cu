// flash_tf32: fp32 attention whose matmuls round their operands to TF32 for the tensor cores (mma.sync,
// since Ampere); sums, softmax and what is stored stay fp32. The tiled kernels with other matmuls. Roofline:
// 4 D forward and 10 D (here 14 D) backward operations per seen pair and head on the tensor cores; in
// practice reading shared memory, since a word is read for every 32 to 64 of a warp's 1024 multiply-adds.
#include "ops/attention/tiled/backward.cuh"
#include "ops/attention/tiled/forward.cuh"

namespace kiln {
namespace {

struct Tf32Step {
  static constexpr bool kSkip = true, kSplit = true, kAsync = true, kAtomic = false;
};

}  // namespace

void attention_cuda_flash_tf32_forward(RankContext& ctx, const AttentionForward& f) {
  f.p.D <= 64 ? tiled::run_forward<Tf32Step, float, tiled::Tf32ForwardTiles<64>>(ctx, f)
              : tiled::run_forward<Tf32Step, float, tiled::Tf32ForwardTiles<128>>(ctx, f);
}

void attention_cuda_flash_tf32_backward(RankContext& ctx, const AttentionBackward& b) {
  b.p.D <= 64 ? tiled::run_backward<Tf32Step, float, tiled::Tf32BackwardTiles<64>>(ctx, b)
              : tiled::run_backward<Tf32Step, float, tiled::Tf32BackwardTiles<128>>(ctx, b);
}

}  // namespace kiln
