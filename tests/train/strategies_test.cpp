// Every strategy on a small LLaMA: the single process's run to rounding, each other's bit for bit where their
// sums have one order, whatever the timing.
#include "dist/strategy/strategies.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "autograd/tape.h"
#include "dist/comm/local_transport.h"
#include "dist/comm/threads/thread_group.h"
#include "support/shaken.h"
#include "support/tiny_run.h"
#include "train/seams.h"

namespace kiln {
namespace {

constexpr const char* kReplicas[] = {"ddp:naive",    "ddp:flat", "ddp:overlap", "ddp:bucketed",
                                     "zero1:simple", "zero1",    "zero2"};

TinyRun tiny(Precision precision) {
  TinyRun run;
  run.precision = precision;
  run.model.layers = 2;
  run.model.tied = true;
  run.steps = 3;
  run.step.graph = false;
  run.step.loss_scale.initial = 1024;
  return run;
}

// The parameters without their padding, which depends on the number of ranks.
std::vector<double> numbers(const TinyRun& run, const std::vector<std::byte>& values, int world) {
  RankOptions o = on(Device::meta());
  o.world = world;
  RankContext ctx(o);
  Llama model(run.model);
  model.params().materialize(ctx, {.precision = run.precision});
  const DType dtype = model.params().values().dtype();
  std::vector<double> all;
  for (const Param& p : model.params().params()) {
    for (int64_t i = 0; i < p.shape.numel(); ++i) {
      const std::byte* at = values.data() + static_cast<std::size_t>(p.offset + i) * size_of(dtype);
      if (dtype == DType::bf16) {
        bf16 v;
        std::memcpy(&v, at, sizeof v);
        all.push_back(static_cast<float>(v));
      } else {
        float v = 0;
        std::memcpy(&v, at, sizeof v);
        all.push_back(v);
      }
    }
  }
  return all;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double d = 0, n = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    d += (a[i] - b[i]) * (a[i] - b[i]);
    n += b[i] * b[i];
  }
  return a.size() == b.size() ? std::sqrt(d / n) : INFINITY;
}

TinyResult of_rank_0(const char* name, const TinyRun& run, int world, int shake,
                     const StrategyOptions& options = {.bucket_mb = 0.01}) {
  std::vector<TinyResult> ranks(static_cast<std::size_t>(world));
  run_thread_ranks(world, on(Device::cpu()), [&](RankContext& ctx, Communicator& comm) {
    const Shaken shaken(ctx, shake);
    const auto strategy = make_strategy(name, options, ctx, comm);
    ranks[static_cast<std::size_t>(ctx.rank())] = train_tiny(ctx, run, *strategy);
  });
  for (const TinyResult& r : ranks) {  // every rank knows the run's loss, norm and weights
    EXPECT_EQ(r.losses, ranks[0].losses) << name;
    EXPECT_EQ(r.norms, ranks[0].norms) << name;
    EXPECT_EQ(r.values, ranks[0].values) << name;
  }
  return ranks[0];
}

TinyResult alone(TinyRun run, int world) {
  run.step.micro_steps *= world;
  return train_tiny(on(Device::cpu()), run);
}

class Strategies : public testing::TestWithParam<Precision> {};

TEST_P(Strategies, TrainToWhatASingleProcessHasAndEachOtherBitForBit) {
  const TinyRun run = tiny(GetParam());
  // How far rounding may carry three steps. Gradients in bf16 are rounded after each micro-step of the single
  // process, and once after the sum over ranks.
  const double far = GetParam() == Precision::fp32 ? 1e-5 : GetParam() == Precision::pure_bf16 ? 2e-2 : 2e-3;
  for (const int world : {2, 3, 4}) {
    const TinyResult single = alone(run, world);
    const std::vector<double> wanted = numbers(run, single.values, 1);
    const TinyResult naive = of_rank_0("ddp:naive", run, world, 0);
    ASSERT_EQ(naive.losses.size(), single.losses.size());
    for (std::size_t i = 0; i < naive.losses.size(); ++i) {
      EXPECT_NEAR(naive.losses[i], single.losses[i], far);
      EXPECT_NEAR(naive.norms[i] / single.norms[i], 1, 5 * far);
    }
    EXPECT_LT(distance(numbers(run, naive.values, world), wanted), far);
    for (const char* name : kReplicas) {
      for (int shake = 1; shake <= 5; ++shake) {
        const TinyResult r = of_rank_0(name, run, world, shake);
        EXPECT_TRUE(r.values == naive.values && r.losses == naive.losses && r.norms == naive.norms)
            << name << " on " << world << " ranks";
      }
    }
  }
}

// Inner micro-steps stay at home in DDP and ZeRO-1; ZeRO-2 sums over the ranks first, and then over them.
TEST_P(Strategies, AccumulateToWhatASingleProcessHas) {
  TinyRun run = tiny(GetParam());
  run.step.micro_steps = 2;
  const bool narrow = GetParam() != Precision::fp32;
  const std::vector<double> wanted = numbers(run, alone(run, 2).values, 1);
  const TinyResult naive = of_rank_0("ddp:naive", run, 2, 0);
  for (const char* name : kReplicas) {
    const TinyResult r = of_rank_0(name, run, 2, 3);
    EXPECT_LT(distance(numbers(run, r.values, 2), wanted), narrow ? 1e-2 : 1e-3) << name;
    if (std::string_view(name) != "zero2") {
      EXPECT_EQ(r.values, naive.values) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Strategies,
                         testing::Values(Precision::fp32, Precision::bf16, Precision::fp16,
                                         Precision::pure_bf16),
                         [](const auto& p) {
                           std::string name(name_of(p.param));
                           std::erase(name, '-');
                           return name;
                         });

TEST(StrategiesSplitWeights, EachRankKeepsTheLowHalvesOfWhatItUpdates) {
  const TinyRun run = tiny(Precision::bf16);
  for (const int world : {2, 3}) {
    const TinyResult whole = of_rank_0("ddp:flat", run, world, 0);
    RankOptions o = on(Device::meta());
    o.world = world;
    RankContext meta(o);
    Llama model(run.model);
    model.params().materialize(meta, {.precision = Precision::bf16});
    for (const char* name : {"zero1", "zero2"}) {
      run_thread_ranks(world, on(Device::cpu()), [&](RankContext& ctx, Communicator& comm) {
        const auto strategy = make_strategy(name, {}, ctx, comm);
        const TinyResult r = train_tiny(ctx, run, *strategy);
        ASSERT_EQ(r.low.size() * static_cast<std::size_t>(world), whole.low.size());
        for (const Param& p : model.params().params()) {
          const int64_t part = p.padded / world;
          EXPECT_EQ(std::memcmp(r.low.data() + p.offset / world * 2,
                                whole.low.data() + (p.offset + part * ctx.rank()) * 2,
                                static_cast<std::size_t>(part) * 2),
                    0)
              << p.name;
        }
      });
    }
  }
}

TEST(StrategiesWire, Bf16CostsRoundingAndNothingElse) {
  const TinyRun run = tiny(Precision::fp32);
  const std::vector<double> wanted = numbers(run, alone(run, 3).values, 1);
  const TinyResult naive = of_rank_0("ddp:naive", run, 3, 0, {.wire = DType::bf16});
  const double d = distance(numbers(run, naive.values, 3), wanted);
  EXPECT_GT(d, 0);
  EXPECT_LT(d, 2e-2);
  for (const char* name : kReplicas) {
    const TinyResult r = of_rank_0(name, run, 3, 2, {.bucket_mb = 0.01, .wire = DType::bf16});
    EXPECT_EQ(r.values, naive.values) << name;
  }
}

// A scale at which everything overflows: every rank leaves out the same updates.
TEST(StrategiesFinite, AnOverflowIsTheSameOnAllRanks) {
  TinyRun run = tiny(Precision::fp16);
  run.step.loss_scale.initial = 1e30;
  run.steps = 4;
  for (const char* name : kReplicas) {
    std::vector<int64_t> skipped(3);
    run_thread_ranks(3, on(Device::cpu()), [&](RankContext& ctx, Communicator& comm) {
      const auto strategy = make_strategy(name, {}, ctx, comm);
      Llama model(run.model);
      model.params().materialize(ctx, layout_for(run.precision, run.step, 3, *strategy));
      strategy->attach(model.params());
      const std::vector<std::byte> before = fetch_bytes(ctx, model.params().values());
      TrainStep step(ctx, model, *strategy, run.step);
      for (int s = 0; s < run.steps; ++s) {
        const TinyBatch b = tiny_batch(run, s * 3 + ctx.rank());
        const HostBatch view = b.host();
        step.run({&view, 1}, run.lr);
      }
      skipped[static_cast<std::size_t>(ctx.rank())] = step.finish().skipped;
      EXPECT_EQ(fetch_bytes(ctx, model.params().values()), before);
      ctx.tape().reset();
    });
    EXPECT_EQ(skipped, (std::vector<int64_t>{4, 4, 4})) << name;
  }
}

TEST(StrategyNames, AnUnknownOneIsAnsweredWithTheList) {
  RankContext ctx(on(Device::cpu()));
  Communicator alone(ctx, make_alone_transport(ctx.backend()));
  auto said = [&](const char* name) {
    try {
      make_strategy(name, {}, ctx, alone);
    } catch (const Error& e) {
      return cat(e.what(), " / ", e.hint());
    }
    return std::string();
  };
  EXPECT_EQ(said("zero-1"),
            "--strategy is 'zero-1'; expected one of: none, ddp:naive, ddp:flat, ddp:overlap, ddp:bucketed, "
            "zero1:simple, zero1, zero2, fsdp / did you mean 'zero1'?");
  for (const std::string_view name : strategy_names()) EXPECT_EQ(said(std::string(name).c_str()), "");
  EXPECT_THROW(check_strategy("none", 2), Error);
  EXPECT_THROW(parse_wire("--wire", "fp8"), Error);
}

}  // namespace
}  // namespace kiln
