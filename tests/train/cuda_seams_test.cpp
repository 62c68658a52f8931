// The seams on a GPU: graphs, kernels and streams must end in the bits, or the numbers, of the plain run.
#include <gtest/gtest.h>

#include <thread>

#include "support/gpu.h"
#include "train/seams.h"

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
