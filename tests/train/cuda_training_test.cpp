// Whole training runs on a GPU, of a model wide enough for the fused kernels and the tensor cores: bf16 must
// end where the CPU ends in fp32, and the way the steps are launched must not change a bit.
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "base/rng.h"
#include "support/gpu.h"
#include "train/presets.h"
#include "train/trainer.h"

namespace kiln {
namespace {

constexpr int64_t kVocab = 64;

// Three tokens of four follow from the one before; the fourth is drawn at random. So a model can learn much,
// and its loss ends at the draws' entropy, far from 0, where one per cent means something.
TinyBatch markov_batch(const TinyRun& run, int64_t number) {
  const PhiloxKey key = philox_key(run.data_seed, "markov");
  auto draw = [&](int64_t row, int64_t at) {
    const int64_t place = (number * run.step.batch + row) * (run.step.context + 1) + at;
    return philox(key, static_cast<uint64_t>(place), 0);
  };
  TinyBatch b;
  for (int64_t row = 0; row < run.step.batch; ++row) {
    auto token = static_cast<int32_t>(draw(row, 0).x % kVocab);
    for (int64_t at = 1; at <= run.step.context; ++at) {
      const auto d = draw(row, at);
      b.tokens.push_back(token);
      token = static_cast<int32_t>(d.y % 4 == 0 ? d.x % kVocab : (token * 29 + 17) % kVocab);
      b.targets.push_back(token);
    }
  }
  return b;
}

TinyRun wide_enough(Precision precision) {
  TinyRun run;
  run.model.vocab = kVocab;
  run.model.d_model = 128;
  run.model.d_ff = 256;
  run.model.layers = 2;
  run.model.heads = 2;  // of 64: flash attention's
  run.model.kv_heads = 1;
  run.step.batch = 4;
  run.step.context = 32;
  run.precision = precision;
  run.lr = 2e-3;
  choose_variants("optimized", "", DeviceType::cuda).apply_to(run.model);
  return run;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<std::byte> weights;
  bool captured = false;
  double end() const { return std::accumulate(losses.end() - 20, losses.end(), 0.0) / 20; }
};

Outcome train(const Device& device, const TinyRun& run, int steps) {
  Trainer trainer(run, device, layout_for(run.precision, run.step));
  Outcome o;
  for (int64_t s = 0; s < steps; ++s) {
    std::vector<TinyBatch> batches;
    for (int i = 0; i < run.step.micro_steps; ++i)
      batches.push_back(markov_batch(run, s * run.step.micro_steps + i));
    if (const auto before = trainer.train(batches, run.lr)) o.losses.push_back(before->loss);
  }
  o.losses.push_back(trainer.step->finish().loss);
  o.weights = trainer.weights();
  o.captured = trainer.step->captured();
  return o;
}

TEST(MarkovBatch, ThreeOfFourTokensFollowFromTheOneBefore) {
  const TinyRun run = wide_enough(Precision::fp32);
  int follow = 0, all = 0;
  std::map<int32_t, int> seen;
  for (int64_t number = 0; number < 100; ++number) {
    const TinyBatch b = markov_batch(run, number);
    for (std::size_t i = 0; i < b.tokens.size(); ++i) {
      follow += b.targets[i] == (b.tokens[i] * 29 + 17) % kVocab ? 1 : 0;
      ++all;
      ++seen[b.targets[i]];
    }
  }
  EXPECT_NEAR(static_cast<double>(follow) / all, 0.75 + 0.25 / kVocab, 0.02);
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(kVocab));
}

class CudaTraining : public testing::Test {
 protected:
  void SetUp() override { KILN_NEEDS_GPU(); }
};

TEST_F(CudaTraining, Bf16EndsWithinOnePerCentOfTheCpuInFp32) {
  constexpr int kSteps = 200;
  const Outcome cpu = train(Device::cpu(), wide_enough(Precision::fp32), kSteps);
  const Outcome gpu = train(Device::cuda(), wide_enough(Precision::bf16), kSteps);
  ASSERT_EQ(cpu.losses.size(), static_cast<std::size_t>(kSteps));
  ASSERT_EQ(gpu.losses.size(), static_cast<std::size_t>(kSteps));
  EXPECT_LT(cpu.end(), 0.6 * cpu.losses.front());  // there was something to learn, and it was
  EXPECT_NEAR(gpu.end() / cpu.end(), 1, 0.01) << "cpu " << cpu.end() << ", gpu " << gpu.end();
}

TEST_F(CudaTraining, TwoRunsEndInTheSameBits) {
  for (Precision precision : {Precision::bf16, Precision::fp32}) {
    const TinyRun run = wide_enough(precision);
    const Outcome first = train(Device::cuda(), run, 100), second = train(Device::cuda(), run, 100);
    EXPECT_EQ(first.losses, second.losses);
    EXPECT_EQ(first.weights, second.weights);
  }
}

TEST_F(CudaTraining, ReplayedGraphsAndRecomputedBlocksChangeNoBit) {
  TinyRun run = wide_enough(Precision::bf16);
  run.step.micro_steps = 2;
  run.step.graph = false;
  const Outcome plain = train(Device::cuda(), run, 20);
  EXPECT_FALSE(plain.captured);
  for (Recompute recompute : {Recompute::none, Recompute::block}) {
    for (bool graph : {false, true}) {
      run.model.recompute = recompute;
      run.step.graph = graph;
      const Outcome other = train(Device::cuda(), run, 20);
      EXPECT_EQ(other.captured, graph);
      EXPECT_EQ(other.losses, plain.losses) << graph;
      EXPECT_EQ(other.weights, plain.weights) << graph;
    }
  }
}

}  // namespace
}  // namespace kiln
