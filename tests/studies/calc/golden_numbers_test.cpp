// The course's figures ("golden numbers") from the product's own functions, each re-derived here in a
// comment. Those of sizes are in tests/model/size_registry_test.cpp, of the block of linears and of xxl in
// parallel_ffn_test.cpp, of rings and buckets in tests/cli/calc_test.cpp, of the flash leaderboard in
// tests/cli/bench_attention_test.cpp, of recomputation in tests/studies/memory/memory_study_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "autograd/precision.h"
#include "dist/comm/link_model.h"
#include "perf/comm/bucket_size.h"
#include "perf/comm/overlap_replay.h"
#include "studies/attention/cell_set.h"
#include "studies/calc/memory_chapter.h"
#include "studies/calc/step_theory.h"
#include "studies/variant_check.h"

namespace kiln {
namespace {

StepTheoryRequest leaderboard() {
  StepTheoryRequest q;
  q.model = NamedModel(find_model_size("leaderboard8b"));
  q.batch = 2;
  q.context = 32768;
  q.precision = Precision::pure_bf16;
  q.hardware = find_hardware("h100");
  return q;
}

double flops_of(const StepTheory& theory, std::string_view op) {
  double sum = 0;
  for (const TheoryOp& row : theory.ops) sum += row.op == op ? row.cost.flops : 0;
  return sum;
}

// Matmuls: 6 x (8.1257e9 - 151936 x 4096 of the lookup table) x 65,536 tokens = 2.95e15. Attention, causal:
// forward 2 matmuls of B T^2/2 x 4096 = 4 x 2 x 32768^2 / 2 x 4096 a layer, x 34 = 5.98e14, and 2.5 times
// that backward: 2.09e15. Together 5.04e15, 5.10 s at the data sheet's 989 TFLOP/s.
TEST(GoldenNumbers, LeaderboardStep) {
  const StepTheory theory = step_theory(leaderboard());
  const double matmul = flops_of(theory, "linear") + flops_of(theory, "linear_cross_entropy");
  const double attention = flops_of(theory, "attention");
  EXPECT_NEAR(matmul / 1e15, 2.95, 0.01);
  EXPECT_NEAR(attention / 1e15, 2.09, 0.01);
  EXPECT_NEAR((matmul + attention) / 1e15, 5.04, 0.01);
  EXPECT_NEAR((matmul + attention) / leaderboard().hardware.flops_of("bf16"), 5.10, 0.01);
}

// 8.1257e9 parameters: 8 bytes each all in bf16, 16 with fp32 state. Logits of both sequences: 65,536 x
// 151,936 x 2 bytes. The inputs of 34 blocks, of one sequence: 34 x 32768 x 4096 x 2 bytes.
TEST(GoldenNumbers, LeaderboardMemory) {
  const auto parameters = static_cast<double>(param_count(find_model_size("leaderboard8b")));
  EXPECT_NEAR(parameters * state_bytes_per_parameter(policy_of(Precision::pure_bf16)) / 0x1p30, 60.5, 0.05);
  EXPECT_NEAR(parameters * state_bytes_per_parameter(policy_of(Precision::fp32)) / 0x1p30, 121, 0.1);
  const auto gib = [](double batch, double width) {
    return calc_residual_stream({.batch = batch, .context = 32768, .d_model = width, .bytes = 2, .size = "x"})
               .derivation["bytes"] /
           0x1p30;
  };
  EXPECT_NEAR(gib(2, 151936), 18.5, 0.05);
  EXPECT_DOUBLE_EQ(34 * gib(1, 4096), 8.5);
}

// Batch x seq x seq x 4 bytes, of one head.
TEST(GoldenNumbers, ScoreMatrices) {
  const auto saved = [](int64_t batch, int64_t seq) {
    RankOptions rank = options_for(Device::meta(), 1, 0);
    rank.variants.set("attention", "naive");
    const AttentionPlan plan = plan_attention({batch, 1, seq, 16, DType::f32, true, false}, rank);
    std::size_t most = 0;
    for (const NamedBytes& n : plan.needed) most = std::max(most, n.bytes);
    return static_cast<double>(most) / 0x1p30;
  };
  EXPECT_EQ(saved(8, 8192), 2);
  EXPECT_EQ(saved(8, 16384), 8);
  EXPECT_EQ(saved(1, 65536), 16);
}

// AG = RS = (N-1)/N S/W, AR = 2 (N-1)/N S/W, alternate (N-1) S/W.
TEST(GoldenNumbers, Rings) {
  constexpr double kS = 1.2e9, kW = 1e9;
  const LinkModel link{0, kW};
  for (const int n : {2, 3, 4, 6, 8}) {
    const double once = (n - 1.0) / n * kS / kW;
    const CallSeconds ring = seconds_on(link, n, CommAlgorithm::ring);
    EXPECT_NEAR(ring("all_gather", static_cast<int64_t>(kS / n)), once, 1e-6) << n;
    EXPECT_NEAR(ring("reduce_scatter", static_cast<int64_t>(kS)), once, 1e-6) << n;
    EXPECT_NEAR(ring("all_reduce", static_cast<int64_t>(kS)), 2 * once, 1e-6) << n;
    const CallSeconds alternate = seconds_on(link, n, CommAlgorithm::alternate);
    EXPECT_NEAR(alternate("all_reduce", static_cast<int64_t>(kS)), (n - 1) * kS / kW, 1e-6) << n;
  }
}

// overhead s/(n w) + n o, least at n = sqrt(s/(w o)): buckets of sqrt(s w o), and twice sqrt(s o / w) lost.
TEST(GoldenNumbers, Buckets) {
  const SumCost cost{10e9, 20e-6};
  const double s = 13.6e9;
  const BestBucket best = best_bucket(s, cost);
  EXPECT_NEAR(best.n, std::sqrt(s / (cost.w * cost.o)), 1e-6 * best.n);
  EXPECT_NEAR(best.bytes, std::sqrt(s * cost.w * cost.o), 1e-6 * best.bytes);
  EXPECT_NEAR(best.overhead, 2 * std::sqrt(s * cost.o / cost.w), 1e-9);
  EXPECT_NEAR(bucket_overhead(s, 7, cost), s / (7 * cost.w) + 7 * cost.o, 1e-12);
}

// Every policy: 16 bytes a parameter in fp32; bf16 with split masters 2 + 2 + 4 + 8, or 14 with gradients as
// narrow as the weights; all in bf16 8; casts at use keep fp32.
TEST(GoldenNumbers, StateOfAParameter) {
  EXPECT_EQ(state_bytes_per_parameter(policy_of(Precision::fp32)), 16);
  EXPECT_EQ(state_bytes_per_parameter(policy_of(Precision::bf16)), 16);
  EXPECT_EQ(state_bytes_per_parameter(policy_of(Precision::bf16, true)), 14);
  EXPECT_EQ(state_bytes_per_parameter(policy_of(Precision::pure_bf16)), 8);
  EXPECT_EQ(state_bytes_per_parameter(policy_of(Precision::autocast)), 16);
}

}  // namespace
}  // namespace kiln
