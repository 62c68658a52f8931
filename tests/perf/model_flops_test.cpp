#include "perf/model/model_flops.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

ModelConfig small() {
  ModelConfig c;
  c.vocab = 512;
  c.d_model = 64;
  c.d_ff = 192;
  c.layers = 3;
  c.heads = c.kv_heads = 4;
  return c;
}

// Matmuls alone: 2 operations per weight and token forward, twice that backward, for every weight but the
// embedding, which is looked up.
TEST(ModelFlops, AreTheWeightsMatmulsAndAttentionAndLittleElse) {
  const ModelConfig c = small();
  const double B = 2, T = 128, tokens = B * T;
  const double weights = 3 * (4 * 64 * 64 + 3 * 64 * 192) + 512 * 64;
  const double attention = 3 * 4.0 * B * T * (T + 1) / 2 * 64;  // causal: two matmuls, half the square
  const StepFlops f = micro_step_flops(c, 2, 128);
  // The sum of the two passes: a fused head makes its gradient in the forward pass.
  EXPECT_GT(f.model(), 6 * weights * tokens + 3 * attention);
  EXPECT_LT(f.model(), 1.1 * (6 * weights * tokens + 3.5 * attention));
  EXPECT_EQ(f.recomputed, 0);
}

TEST(ModelFlops, RecomputingTheBlocksIsCountedApart) {
  ModelConfig c = small();
  const StepFlops plain = micro_step_flops(c, 1, 64);
  c.recompute = Recompute::block;
  const StepFlops again = micro_step_flops(c, 1, 64);
  EXPECT_EQ(again.model(), plain.model());
  EXPECT_GT(again.recomputed, 0.5 * plain.forward);
  EXPECT_LT(again.recomputed, plain.forward);
}

}  // namespace
}  // namespace kiln
