// The seams on a GPU: graphs, kernels and streams must end in the bits, or the numbers, of the plain run.
#include <gtest/gtest.h>

#include <thread>

#include "support/gpu.h"
#include "train/seams.h"
#include "train/trainer.h"

namespace kiln {
namespace {

class CudaSeams : public testing::Test {
 protected:
  void SetUp() override { KILN_NEEDS_GPU(); }
};

TEST_F(CudaSeams, GraphReplayEndsInTheBitsOfEager) {
  for (Precision precision : {Precision::fp32, Precision::bf16}) {
    for (Recompute r : {Recompute::none, Recompute::nested}) {
      for (int micro_steps : {1, 3}) {
        TinyRun run;
        run.precision = precision;
        run.model.layers = 2;
        run.model.recompute = r;
        run.step.micro_steps = micro_steps;
        run.steps = 6;
        run.step.graph = false;
        const TinyResult eager = train_tiny(on(Device::cuda()), run);
        run.step.graph = true;
        const TinyResult graph = train_tiny(on(Device::cuda()), run);
        EXPECT_FALSE(eager.captured);
        EXPECT_TRUE(graph.captured);
        EXPECT_TRUE(same_bits(eager, graph));
      }
    }
  }
}

TEST_F(CudaSeams, BatchesSentAheadEndInTheBitsOfNone) {
  for (const bool graph : {false, true}) {
    for (const int micro_steps : {1, 2, 5}) {
      TinyRun run;
      run.precision = Precision::bf16;
      run.step.graph = graph;
      run.step.micro_steps = micro_steps;
      run.steps = 12;
      run.step.prefetch = false;
      const TinyResult plain = train_tiny(on(Device::cuda()), run);
      run.step.prefetch = true;
      EXPECT_TRUE(same_bits(train_tiny(on(Device::cuda()), run), plain)) << micro_steps << graph;
    }
  }
}

// Only the batch of the bad step has a token outside the vocabulary: the replay must run that one.
TEST_F(CudaSeams, AReplayWithBatchesSentAheadRunsThoseOfTheBadStep) {
  TinyRun run;
  run.step.micro_steps = 2;
  run.step.prefetch = true;
  for (const int bad_step : {1, 2, 5}) {
    Trainer t(run, Device::cuda());
    for (int s = 1; s < bad_step; ++s) t.train(s);
    const auto weights = t.weights();
    auto batches = t.batches(bad_step);
    batches[1].tokens[5] = 61;
    t.train(batches, run.lr);
    const std::string said = complaint([&] { t.train(bad_step + 1); });
    EXPECT_EQ(said.find(cat("step ", bad_step, " is not finite: [embedding]")), 0u) << said;
    EXPECT_EQ(t.weights(), weights);
    ASSERT_TRUE(t.step->stall_ms());
    EXPECT_GE(*t.step->stall_ms(), 0);
  }
}

TEST_F(CudaSeams, RecomputeAndNestedRecomputeEndInTheSameBits) {
  TinyRun run;
  run.model.layers = 3;
  const TinyResult plain = train_tiny(on(Device::cuda()), run);
  for (Recompute r : {Recompute::block, Recompute::nested}) {
    run.model.recompute = r;
    EXPECT_TRUE(same_bits(train_tiny(on(Device::cuda()), run), plain));
  }
}

TEST_F(CudaSeams, AgreesWithTheCpu) {
  TinyRun run;
  run.steps = 3;
  run.lr = 1e-3;
  const TinyResult cpu = train_tiny(on(Device::cpu()), run), gpu = train_tiny(on(Device::cuda()), run);
  for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
    EXPECT_NEAR(gpu.losses[i], cpu.losses[i], 1e-5);
    EXPECT_NEAR(gpu.norms[i] / cpu.norms[i], 1, 1e-5);
  }
  // Adam divides by the gradient's own size, so a rounding of a near-zero gradient moves a weight by up to
  // lr.
  EXPECT_LT(relative_distance(gpu.values, cpu.values), 1e-4);
  RankContext a(on(Device::cpu())), b(on(Device::cuda()));
  Llama on_cpu(run.model), on_gpu(run.model);
  on_cpu.params().materialize(a);
  on_gpu.params().materialize(b);
  EXPECT_EQ(fetch_bytes(a, on_cpu.params().values()),
            fetch_bytes(b, on_gpu.params().values()));  // same normals
}

TEST_F(CudaSeams, MetaPredictsThePeaksOfEagerAndCaptured) {
  expect_meta_predicts(Device::cuda(), DeviceType::cuda, false);
  expect_meta_predicts(Device::cuda(), DeviceType::cuda, true);
}

TEST_F(CudaSeams, TwoRanksReducingArenaRangesEqualOne) {
  expect_two_ranks_equal_one(Device::cuda(), false, make_ddp);
}

TEST_F(CudaSeams, TwoRanksGatheringShardsOnUseEqualOne) {
  expect_two_ranks_equal_one(Device::cuda(), false, make_fsdp);
}

TEST_F(CudaSeams, PlantedNanIsNamedAndWeightsStay) {
  expect_nan_is_named(Device::cuda(), false, "swiglu", Pass::forward, "layers.0.mlp");
  expect_nan_is_named(Device::cuda(), true, "attention", Pass::backward, "layers.0.attention");
}

TEST_F(CudaSeams, TwoContextsTrainDifferentModelsSideBySide) {
  TinyRun a, b;
  b.model.layers = 2;
  b.step.graph = false;
  a.step.graph = false;
  const TinyResult alone_a = train_tiny(on(Device::cuda()), a), alone_b = train_tiny(on(Device::cuda()), b);
  TinyResult beside_a, beside_b;
  std::thread first([&] { beside_a = train_tiny(on(Device::cuda()), a); });
  std::thread second([&] { beside_b = train_tiny(on(Device::cuda()), b); });
  first.join();
  second.join();
  EXPECT_TRUE(same_bits(beside_a, alone_a));
  EXPECT_TRUE(same_bits(beside_b, alone_b));
}

}  // namespace
}  // namespace kiln
