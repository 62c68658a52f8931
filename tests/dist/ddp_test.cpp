// DDP on the toy models, in all its forms: two ranks with weights of their own take rank 0's, and train to
// what a single process has.
#include "dist/strategy/ddp.h"

#include <gtest/gtest.h>

#include "dist/comm/threads/thread_group.h"
#include "dist/strategy/strategies.h"
#include "optim/sgd_optimizer.h"
#include "support/shaken.h"
#include "support/toy_model.h"

namespace kiln {
namespace {

constexpr int kSteps = 5;

RankOptions one_thread() {
  RankOptions o;
  o.threads = 1;
  return o;
}

std::vector<float> single(bool tied, int micro_steps) {
  RankContext ctx(one_thread());
  ToyModel model(ctx, tied, {}, 100);
  Strategy none;
  SgdOptimizer sgd(ctx, none.spans(model.store), {.momentum = 0, .decay = 0});
  const Tensor scalars = toy_scalars(ctx, 0.1);
  const ToyData data(20);
  for (int s = 0; s < kSteps; ++s) toy_step(ctx, model, none, sgd, scalars, data, s, micro_steps);
  return model.values();
}

struct Toy {
  const char* strategy;
  StrategyOptions options = {};
  bool tied = false;
  int micro_steps = 1;
  int world = 2;
  int shake = 0;
};

// The values of each rank; rank 0 begins with the single process's.
std::vector<std::vector<float>> trained(const Toy& toy) {
  std::vector<std::vector<float>> values(static_cast<std::size_t>(toy.world));
  run_thread_ranks(toy.world, one_thread(), [&](RankContext& ctx, Communicator& comm) {
    const Shaken shaken(ctx, toy.shake);
    const auto strategy = make_strategy(toy.strategy, toy.options, ctx, comm);
    ToyModel model(ctx, toy.tied, {.sharded_grads = strategy->shards_grads()},
                   100 + static_cast<unsigned>(ctx.rank()));
    const std::vector<float> before = model.values();
    strategy->attach(model.store);
    EXPECT_EQ(model.values() == before, ctx.rank() == 0);  // rank 0 keeps its weights, the others get them
    SgdOptimizer sgd(ctx, strategy->spans(model.store), {.momentum = 0, .decay = 0});
    const Tensor scalars = toy_scalars(ctx, 0.1);
    const ToyData data(20);
    for (int s = 0; s < kSteps; ++s) toy_step(ctx, model, *strategy, sgd, scalars, data, s, toy.micro_steps);
    values[static_cast<std::size_t>(ctx.rank())] = model.values();
  });
  return values;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << i;
}

TEST(ToyDdp, EveryFormTrainsToWhatASingleProcessHas) {
  for (const bool tied : {false, true}) {
    for (const int micro_steps : {1, 2}) {
      const std::vector<float> alone = single(tied, 1);
      std::vector<float> first;
      for (const char* form :
           {"ddp:naive", "ddp:flat", "ddp:overlap", "ddp:bucketed", "zero1:simple", "zero1"}) {
        SCOPED_TRACE(form);
        const auto ranks = trained({.strategy = form, .tied = tied, .micro_steps = micro_steps});
        EXPECT_EQ(ranks[0], ranks[1]);
        expect_near(ranks[0], alone, 2e-6f);
        if (first.empty()) first = ranks[0];
        EXPECT_EQ(ranks[0], first);  // the same sums in the same order
      }
      expect_near(trained({.strategy = "zero2", .tied = tied, .micro_steps = micro_steps})[1], alone, 2e-6f);
    }
  }
}

TEST(ToyDdp, BucketsOfAnySizeEndInTheSameBitsWhateverTheTiming) {
  for (const bool tied : {false, true}) {
    const auto still = trained({.strategy = "ddp:naive", .tied = tied});
    for (const char* form : {"ddp:bucketed", "zero1", "zero2"}) {
      for (const double mb : {0.0016, 0.0001, 0.01}) {
        for (int repeat = 1; repeat <= 5; ++repeat) {
          const auto ranks =
              trained({.strategy = form, .options = {.bucket_mb = mb}, .tied = tied, .shake = repeat});
          EXPECT_EQ(ranks, still) << form << " " << mb;
        }
      }
    }
  }
}

TEST(ToyDdp, TheToyModelHasTwoThreeAndOneBuckets) {
  run_thread_ranks(2, one_thread(), [](RankContext& ctx, Communicator& comm) {
    for (const auto& [mb, count] : {std::pair(0.0016, 2u), {0.0001, 3u}, {0.01, 1u}}) {
      ToyModel model(ctx, false, {}, 1);
      DdpStrategy ddp(ctx, comm, {.cap = mb * 1e6});
      ddp.attach(model.store);
      EXPECT_EQ(ddp.buckets().size(), count);
      for (const Bucket& b : ddp.buckets()) {
        for (const Param* p : b.params) EXPECT_TRUE(p->trainable);
      }
    }
  });
}

TEST(ToyDdp, FrozenParametersStayAsTheyAre) {
  run_thread_ranks(2, one_thread(), [](RankContext& ctx, Communicator& comm) {
    for (const char* name : {"ddp:overlap", "zero1", "zero2"}) {
      const auto strategy = make_strategy(name, {}, ctx, comm);
      ToyModel model(ctx, false, {.sharded_grads = strategy->shards_grads()}, 7);
      strategy->attach(model.store);
      const float bias = model.bias->value.data<float>()[3], fixed = model.fixed->value.data<float>()[1];
      SgdOptimizer sgd(ctx, strategy->spans(model.store), {.momentum = 0, .decay = 0});
      const Tensor scalars = toy_scalars(ctx, 0.1);
      toy_step(ctx, model, *strategy, sgd, scalars, ToyData(20), 0);
      EXPECT_EQ(model.bias->value.data<float>()[3], bias);
      EXPECT_EQ(model.fixed->value.data<float>()[1], fixed);
    }
  });
}

// bf16 keeps 8 bits of each gradient; what the ranks end with is the same on all of them.
TEST(ToyDdp, ABf16WireCostsRoundingAndTheRanksStayEqual) {
  const std::vector<float> alone = single(false, 1);
  std::vector<float> first;
  for (const char* form :
       {"ddp:naive", "ddp:flat", "ddp:overlap", "ddp:bucketed", "zero1:simple", "zero1", "zero2"}) {
    const auto ranks = trained({.strategy = form, .options = {.wire = DType::bf16}});
    EXPECT_EQ(ranks[0], ranks[1]) << form;
    if (first.empty()) first = ranks[0];
    EXPECT_EQ(ranks[0], first) << form;
  }
  EXPECT_NE(first, alone);
  expect_near(first, alone, 2e-3f);
}

TEST(ToyDdp, InnerMicroStepsSendNothing) {
  run_thread_ranks(2, one_thread(), [](RankContext& ctx, Communicator& comm) {
    for (const int micro_steps : {1, 2}) {
      ToyModel model(ctx, false, {}, 7);
      DdpStrategy ddp(ctx, comm);
      ddp.attach(model.store);
      SgdOptimizer sgd(ctx, ddp.spans(model.store), {.momentum = 0, .decay = 0});
      const Tensor scalars = toy_scalars(ctx, 0.1);
      toy_step(ctx, model, ddp, sgd, scalars, ToyData(20), 0, micro_steps);
      EXPECT_EQ(ddp.volume().all_reduce, 4u * (256 + 504 + 104));  // once, padding with it
    }
  });
}

}  // namespace
}  // namespace kiln
