// The seams, tested on one transformer block with loss and update: whatever way the step is run, it
// must end in the same bits. Kept for good: every later part of kiln depends on this. On a GPU:
// cuda_seams_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "autograd/tape.h"
#include "dist/comm/threads/thread_group.h"
#include "dist/strategy/fsdp.h"
#include "train/seams.h"

namespace kiln {
namespace {

TEST(Seams, TrainingLearnsSomething) {
  TinyRun run;
  run.steps = 30;
  const TinyResult r = train_tiny(on(Device::cpu()), run);
  ASSERT_EQ(r.losses.size(), 30u);
  EXPECT_NEAR(r.losses.front(), std::log(61.0), 1.5);
  EXPECT_LT(r.losses.back(), 0.7 * r.losses.front());
  for (double n : r.norms) EXPECT_TRUE(std::isfinite(n) && n > 0);
}

TEST(Seams, RecomputeAndNestedRecomputeEndInTheSameBits) {
  for (Precision precision : {Precision::fp32, Precision::bf16}) {
    for (int64_t layers : {1, 3}) {
      TinyRun run;
      run.precision = precision;
      run.model.layers = layers;
      const TinyResult plain = train_tiny(on(Device::cpu()), run);
      for (Recompute r : {Recompute::block, Recompute::nested}) {
        run.model.recompute = r;
        EXPECT_TRUE(same_bits(train_tiny(on(Device::cpu()), run), plain)) << layers << " layers";
      }
    }
  }
}

TEST(Seams, RecomputeKeepsLess) {
  TinyRun run;
  run.model.layers = 6;
  auto activations = [&](Recompute r) {
    run.model.recompute = r;
    return train_tiny(on(Device::meta()), run).memory.peak[Tag::activation];
  };
  const std::size_t none = activations(Recompute::none), block = activations(Recompute::block);
  EXPECT_LT(block, none / 2);
  EXPECT_LE(activations(Recompute::nested), block);
}

TEST(Seams, ThreadCountDoesNotChangeBits) {
  TinyRun run;
  const TinyResult one = train_tiny(on(Device::cpu(), 1), run);
  for (int threads : {2, 3})
    EXPECT_TRUE(same_bits(train_tiny(on(Device::cpu(), threads), run), one)) << threads;
}

TEST(Seams, RunsTwiceTheSame) {
  TinyRun run;
  run.step.micro_steps = 2;
  EXPECT_TRUE(same_bits(train_tiny(on(Device::cpu()), run), train_tiny(on(Device::cpu()), run)));
}

TEST(Seams, UnfusedProjectionsOnViewsAgreeToRounding) {
  TinyRun run;
  const TinyResult fused = train_tiny(on(Device::cpu()), run);
  run.model.fused_qkv = run.model.fused_gate_up = false;
  const TinyResult unfused = train_tiny(on(Device::cpu()), run);
  EXPECT_NEAR(fused.losses.front(), unfused.losses.front(),
              1e-6);  // the first forward is the same arithmetic
  // dx sums the three projections' shares in another order, so later steps agree to rounding only.
  EXPECT_LT(relative_distance(unfused.values, fused.values), 1e-3);
}

TEST(Seams, HeadAndLossAsOneOpAgreeToRoundingAndKeepLess) {
  for (bool tied : {false, true}) {
    TinyRun run;
    run.model.tied = tied;
    const TinyResult fused = train_tiny(on(Device::cpu()), run);
    run.model.fused_linear_ce = false;
    const TinyResult apart = train_tiny(on(Device::cpu()), run);
    EXPECT_NEAR(fused.losses.front(), apart.losses.front(), 1e-6);
    EXPECT_LT(relative_distance(fused.values, apart.values), 1e-3);
  }
  TinyRun wide;  // enough tokens that their logits would be most of the memory
  wide.model.vocab = 5000;
  wide.step.batch = 64;
  wide.step.context = 32;
  auto peak = [&](bool fused) {
    wide.model.fused_linear_ce = fused;
    return train_tiny(on(Device::meta()), wide).memory.peak_total;
  };
  EXPECT_LT(peak(true), peak(false) / 2);
}

TEST(Seams, OneUpdateOfTheWholeModelAgreesWithOnePerParameter) {
  for (Precision precision : {Precision::fp32, Precision::bf16}) {
    TinyRun run;
    run.precision = precision;
    run.steps = 2;
    RankOptions naive = on(Device::cpu());
    naive.variants.set("adamw", "naive");
    const TinyResult whole = train_tiny(on(Device::cpu()), run), each = train_tiny(naive, run);
    EXPECT_LT(relative_distance(whole.state.at("m"), each.state.at("m")), 1e-4);
    EXPECT_NEAR(whole.losses.back(), each.losses.back(), precision == Precision::fp32 ? 1e-5 : 1e-2);
  }
}

TEST(Seams, TiedEmbeddingTrainsAndRecomputesToTheSameBits) {
  TinyRun run;
  run.model.tied = true;
  run.steps = 20;
  const TinyResult plain = train_tiny(on(Device::cpu()), run);
  EXPECT_LT(plain.losses.back(), plain.losses.front());
  run.model.recompute = Recompute::block;
  EXPECT_TRUE(same_bits(train_tiny(on(Device::cpu()), run), plain));
}

TEST(Seams, AccumulationOverMicroStepsIsTheWholeBatchToRounding) {
  TinyRun halves;
  halves.step.micro_steps = 2;
  TinyRun whole;
  whole.step.batch = 2 * halves.step.batch;
  const TinyResult a = train_tiny(on(Device::cpu()), halves), b = train_tiny(on(Device::cpu()), whole);
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i) EXPECT_NEAR(a.losses[i], b.losses[i], 1e-5);
  EXPECT_LT(relative_distance(a.values, b.values), 1e-3);
}

TEST(Seams, MetaPredictsThePeaksOfTheCpu) { expect_meta_predicts(Device::cpu(), DeviceType::cpu, false); }

TEST(Seams, TwoRanksReducingArenaRangesEqualOne) {
  expect_two_ranks_equal_one(Device::cpu(), true, make_ddp);
}

TEST(Seams, TwoRanksGatheringShardsOnUseEqualOne) {
  expect_two_ranks_equal_one(Device::cpu(), true, make_fsdp);
}

TEST(Seams, ShardedRanksRecomputeAndTieToo) {
  TinyRun run;
  run.model.layers = 2;
  run.model.tied = true;
  std::vector<TinyResult> plain(2), again(2);
  for (auto* results : {&plain, &again}) {
    run_thread_ranks(2, on(Device::cpu()), [&](RankContext& ctx, Communicator& comm) {
      FsdpStrategy strategy(ctx, comm);
      (*results)[ctx.rank()] = train_tiny(ctx, run, strategy);
    });
    run.model.recompute = Recompute::nested;
  }
  for (int r : {0, 1}) EXPECT_TRUE(same_bits(plain[r], again[r]));
}

TEST(Seams, PlantedNanIsNamedAndWeightsStay) {
  expect_nan_is_named(Device::cpu(), false, "swiglu", Pass::forward, "layers.0.mlp");
  expect_nan_is_named(Device::cpu(), false, "attention", Pass::backward, "layers.0.attention");
  expect_nan_is_named(Device::cpu(), false, "linear_cross_entropy", Pass::forward, "loss");
}

TEST(Seams, TokenOutsideTheVocabularyIsNamed) {
  RankContext ctx(on(Device::cpu()));
  TinyRun run;
  Llama model(run.model);
  Strategy plain;
  model.params().materialize(ctx);
  TrainStep step(ctx, model, plain, run.step);
  TinyBatch b = tiny_batch(run, 0);
  b.tokens[5] = 61;
  const HostBatch view = b.host();
  step.run({&view, 1}, run.lr);
  try {
    step.finish();
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("[embedding]"), std::string::npos) << e.what();
  }
}

TEST(Seams, TwoContextsTrainDifferentModelsSideBySide) {
  TinyRun a, b;
  b.model.layers = 2;
  b.model.d_model = 32;
  b.model.heads = 4;
  b.precision = Precision::bf16;
  const TinyResult alone_a = train_tiny(on(Device::cpu(), 2), a),
                   alone_b = train_tiny(on(Device::cpu(), 2), b);
  TinyResult beside_a, beside_b;
  std::thread first([&] { beside_a = train_tiny(on(Device::cpu(), 2), a); });
  std::thread second([&] { beside_b = train_tiny(on(Device::cpu(), 2), b); });
  first.join();
  second.join();
  EXPECT_TRUE(same_bits(beside_a, alone_a));
  EXPECT_TRUE(same_bits(beside_b, alone_b));
}

TEST(Seams, EveryFailedAllocationIsACleanError) {
  for (Precision precision : {Precision::fp32, Precision::fp16}) {
    TinyRun run;
    run.precision = precision;
    run.steps = 2;
    int64_t allocations = 0;
    {
      RankContext ctx(on(Device::cpu()));
      Strategy plain;
      train_tiny(ctx, run, plain);
      allocations = ctx.allocator().allocation_count();
    }
    for (int64_t n = 1; n <= allocations; ++n) {
      RankContext ctx(on(Device::cpu()));
      Strategy plain;
      ctx.allocator().fail_at(n);
      try {
        train_tiny(ctx, run, plain);
        FAIL() << "allocation " << n << " of " << allocations << " failed unnoticed";
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find("out of memory"), std::string::npos) << e.what();
      }
      ctx.tape().reset();
      EXPECT_EQ(ctx.allocator().stats().live_total, 0u) << "leak after allocation " << n << " failed";
    }
  }
}

}  // namespace
}  // namespace kiln
