// ZeRO on the toy models: a sharded optimizer does what the whole one does, whichever it is, and what it
// moves and holds is what theory says.
#include "dist/strategy/zero.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "dist/comm/local_transport.h"
#include "dist/comm/threads/thread_group.h"
#include "dist/strategy/strategies.h"
#include "optim/adamw_optimizer.h"
#include "optim/sgd_optimizer.h"
#include "support/shaken.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/toy_model.h"

namespace kiln {
namespace {

RankOptions one_thread(Device device = Device::cpu()) {
  RankOptions o;
  o.device = device;
  o.threads = 1;
  return o;
}

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(RankContext&, std::vector<ParamSpan>)>;

std::unique_ptr<Optimizer> adamw(RankContext& ctx, std::vector<ParamSpan> spans) {
  return std::make_unique<AdamWOptimizer>(ctx, std::move(spans), AdamWOptions{.decay = 0.1});
}

std::unique_ptr<Optimizer> momentum(RankContext& ctx, std::vector<ParamSpan> spans) {
  return std::make_unique<SgdOptimizer>(ctx, std::move(spans), SgdOptions{.momentum = 0.9, .decay = 0.01});
}

struct Sharded {
  bool tied = false;
  int late = -1;  // the step from which the last layer is trained too
  MakeOptimizer make = adamw;
  double lr = 0.1;
};

// Ten steps on all rows on every rank: the single process's arithmetic, up to the order of sums.
std::vector<float> trained(RankContext& ctx, Strategy& strategy, const Sharded& s) {
  ToyModel model(ctx, s.tied, {.sharded_grads = strategy.shards_grads()}, 9);
  if (s.late > 0) model.last->trainable = false;
  strategy.attach(model.store);
  const auto optimizer = s.make(ctx, strategy.spans(model.store));
  const Tensor scalars = toy_scalars(ctx, s.lr);
  const ToyData data(32);
  for (int step = 0; step < 10; ++step) {
    if (step == s.late) {
      model.last->trainable = true;
      strategy.refresh();
      optimizer->add(ctx, missing_spans(*optimizer, strategy.spans(model.store)), scalars);
    }
    toy_step(ctx, model, strategy, *optimizer, scalars, data, step);
  }
  return model.values();
}

std::vector<float> whole(const Sharded& s) {
  RankContext ctx(one_thread());
  Strategy none;
  return trained(ctx, none, s);
}

void expect_sharded_equals_whole(const Sharded& s) {
  const std::vector<float> alone = whole(s);
  for (const int world : {2, 4}) {
    std::vector<float> first;
    for (const char* name : {"ddp:bucketed", "zero1:simple", "zero1", "zero2"}) {
      for (int shake = 0; shake < 3; ++shake) {
        run_thread_ranks(world, one_thread(), [&](RankContext& ctx, Communicator& comm) {
          const Shaken shaken(ctx, shake);
          const auto strategy = make_strategy(name, {.bucket_mb = 0.0016}, ctx, comm);
          const std::vector<float> values = trained(ctx, *strategy, s);
          if (ctx.rank() == 0 && first.empty()) first = values;
          comm.barrier(ctx, "first");
          EXPECT_EQ(values, first) << name;  // sharded is unsharded, bit for bit
          ASSERT_EQ(values.size(), alone.size());
          // And a single process up to the order in which it sums rows: Adam divides small gradients by
          // themselves, so a last bit of one near zero can be worth a part of the learning rate.
          double d = 0, n = 0;
          for (std::size_t i = 0; i < alone.size(); ++i) {
            d += (values[i] - alone[i]) * (values[i] - alone[i]);
            n += alone[i] * alone[i];
          }
          EXPECT_LT(std::sqrt(d / n), 1e-4) << name;
        });
      }
    }
  }
}

TEST(ShardedOptimizer, AdamWEqualsTheWholeOne) {
  for (const bool tied : {false, true}) expect_sharded_equals_whole({.tied = tied});
}

TEST(ShardedOptimizer, SgdWithMomentumEqualsTheWholeOne) {
  for (const bool tied : {false, true})
    expect_sharded_equals_whole({.tied = tied, .make = momentum, .lr = 0.05});
}

TEST(ShardedOptimizer, AGroupThatJoinsLaterEqualsTheWholeOne) {
  expect_sharded_equals_whole({.late = 4});
  expect_sharded_equals_whole({.late = 4, .make = momentum, .lr = 0.05});
}

// One weight of gradient 1 joins after four steps. Its bias correction counts its own steps: each of its
// updates is lr, as those of any constant gradient are.
TEST(ShardedOptimizer, AGroupThatJoinsLaterHasABiasCorrectionOfItsOwn) {
  RankContext ctx(one_thread());
  ParamStore store;
  Param &old = store.add("old", {4}, {}, false), &late = store.add("late", {4}, {}, false);
  late.trainable = false;
  store.materialize(ctx);
  for (Param* p : {&old, &late}) {
    for (int i = 0; i < 4; ++i) {
      p->value.data<float>()[i] = 0;
      p->grad.data<float>()[i] = 1;
    }
  }
  AdamWOptimizer optimizer(ctx, store.spans(), {.beta2 = 0.999, .decay = 0});
  const Tensor scalars = toy_scalars(ctx, 0.1);
  for (int step = 1; step <= 10; ++step) {
    if (step == 5) {
      late.trainable = true;
      optimizer.add(ctx, missing_spans(optimizer, store.spans()), scalars);
    }
    finish_step_scalars(ctx, scalars, 0, {0.9, 0.999});
    optimizer.step(ctx, scalars);
    EXPECT_NEAR(old.value.data<float>()[1], -0.1 * step, 1e-5);
    EXPECT_NEAR(late.value.data<float>()[1], -0.1 * std::max(0, step - 4), 1e-5);
  }
}

TEST(ShardedOptimizer, EachRankHoldsItsPartOfTheState) {
  constexpr int64_t kWeights = 256 + 504 + 104;  // padded for two ranks
  for (const char* name : {"zero1", "zero2", "zero1:simple"}) {
    std::vector<int64_t> held(2);
    run_thread_ranks(2, one_thread(), [&](RankContext& ctx, Communicator& comm) {
      const auto strategy = make_strategy(name, {}, ctx, comm);
      ToyModel model(ctx, false, {.sharded_grads = strategy->shards_grads()}, 9);
      strategy->attach(model.store);
      const AdamWOptimizer optimizer(ctx, strategy->spans(model.store), {});
      held[static_cast<std::size_t>(ctx.rank())] = optimizer.state("m").numel();
    });
    EXPECT_EQ(held[0] + held[1], kWeights) << name;
    if (std::string_view(name) == "zero1:simple")
      EXPECT_EQ(held, (std::vector<int64_t>{256 + 104, 504}));  // whole parameters
    else
      EXPECT_EQ(held[0], held[1]);
  }
}

// Each matrix moves by its gradient over the gradient's norm: no cut of it knows that norm.
class NormedSgd final : public Optimizer {
 public:
  explicit NormedSgd(std::vector<ParamSpan> spans) : Optimizer(std::move(spans)) {}
  void step(RankContext& ctx, const Tensor& scalars) override {
    StepScalars s;
    ctx.download(&s, scalars);
    for (const ParamSpan& p : spans_) {
      float* const w = p.value.data<float>();
      const float* const g = p.grad.data<float>();
      const int64_t n = p.shape.numel();
      double squares = 0;
      for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(g[i]) * static_cast<double>(g[i]);
      for (int64_t i = 0; i < n && squares > 0; ++i)
        w[i] -= static_cast<float>(s.lr * static_cast<double>(g[i]) / std::sqrt(squares));
    }
  }
};

TEST(ShardedOptimizer, OneThatNeedsWholeMatricesHasThemOrIsRefused) {
  const auto trained_by = [](RankContext& ctx, Strategy& strategy) {
    ToyModel model(ctx, false, {.sharded_grads = strategy.shards_grads()}, 9);
    strategy.attach(model.store);
    NormedSgd optimizer(strategy.spans(model.store, SpanUnit::matrices));
    const Tensor scalars = toy_scalars(ctx, 0.05);
    for (int step = 0; step < 5; ++step)
      toy_step(ctx, model, strategy, optimizer, scalars, ToyData(32), step);
    return model.values();
  };
  RankContext alone(one_thread());
  Strategy none;
  const std::vector<float> wanted = trained_by(alone, none);
  run_thread_ranks(2, one_thread(), [&](RankContext& ctx, Communicator& comm) {
    std::vector<float> first;
    for (const char* name : {"ddp:bucketed", "zero1:simple"}) {
      const auto strategy = make_strategy(name, {}, ctx, comm);
      const std::vector<float> values = trained_by(ctx, *strategy);
      if (first.empty()) first = values;
      EXPECT_EQ(values, first) << name;
      for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(values[i], wanted[i], 1e-4) << name;
    }
    for (const char* name : {"zero1", "zero2", "fsdp"}) {
      const auto strategy = make_strategy(name, {}, ctx, comm);
      ParamStore store;
      store.add("w", {10, 5}, {});
      store.materialize(ctx, {.sharded = strategy->shards_params(),
                              .sharded_grads = strategy->shards_grads() && !strategy->shards_params()});
      strategy->attach(store);
      EXPECT_EQ(strategy->spans(store).size(), 1U);
      const std::string said = KILN_ERROR_OF(strategy->spans(store, SpanUnit::matrices));
      EXPECT_EQ(said.find(cat("the optimizer updates whole matrices, and --strategy ", name,
                              " leaves each rank a cut of every one")),
                0U)
          << said;
    }
  });
}

// Of n bytes of gradients and of values each: DDP sends 2 (world-1)/world n, true ZeRO the same, its simple
// form half as much again; ZeRO-2 reduces in every micro-step.
TEST(ZeroVolume, IsThePapers) {
  for (const int world : {2, 4}) {
    for (const int micro_steps : {1, 2}) {
      std::map<std::string, double> sent;
      double bytes = 0;
      for (const char* name : {"ddp:bucketed", "zero1:simple", "zero1", "zero2"}) {
        run_thread_ranks(world, one_thread(), [&](RankContext& ctx, Communicator& comm) {
          const auto strategy = make_strategy(name, {}, ctx, comm);
          ToyModel model(ctx, true, {.sharded_grads = strategy->shards_grads()}, 9);
          strategy->attach(model.store);
          const auto optimizer = adamw(ctx, strategy->spans(model.store));
          toy_step(ctx, model, *strategy, *optimizer, toy_scalars(ctx, 0.1), ToyData(32), 0, micro_steps);
          if (ctx.rank() != 0) return;
          sent[name] = strategy->volume().sent_per_rank(world);
          bytes = 4.0 * static_cast<double>(model.store.total());
        });
      }
      const double pass = bytes * (world - 1) / world;
      EXPECT_DOUBLE_EQ(sent["ddp:bucketed"], 2 * pass);
      EXPECT_DOUBLE_EQ(sent["zero1"], 2 * pass);
      EXPECT_DOUBLE_EQ(sent["zero1:simple"], 3 * pass);
      EXPECT_DOUBLE_EQ(sent["zero2"], (micro_steps + 1) * pass);
    }
  }
}

// What a rank holds between two steps, by tag, against theory.
struct Held {
  double param, master, grad, optim;
};

void expect_held(const MemoryStats& memory, const Held& theory) {
  auto near = [](std::size_t seen, double wanted) {
    EXPECT_NEAR(static_cast<double>(seen), wanted, 0.02 * wanted + 1) << wanted;
  };
  near(memory.live[Tag::param], theory.param);
  near(memory.live[Tag::master], theory.master);
  near(memory.live[Tag::grad], theory.grad);
  near(memory.live[Tag::optim], theory.optim);
}

MemoryStats after_two_steps(RankContext& ctx, const TinyRun& run, Strategy& strategy) {
  Llama model(run.model);
  model.params().materialize(ctx, layout_for(run.precision, run.step, ctx.world(), strategy));
  strategy.attach(model.params());
  TrainStep step(ctx, model, strategy, run.step);
  for (int s = 0; s < 2; ++s) {
    const TinyBatch b = tiny_batch(run, s * ctx.world() + ctx.rank());
    const HostBatch view = b.host();
    step.run({&view, 1}, 1e-3);
  }
  step.finish();
  ctx.tape().reset();
  return ctx.allocator().stats();
}

TEST(ZeroMemory, OfARankIsWhatTheorySaysAndMetaKnowsIt) {
  TinyRun run;
  run.model.vocab = 509;
  run.model.d_model = 96;
  run.model.d_ff = 264;
  run.model.layers = 2;
  run.step.graph = false;
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    run.precision = precision;
    const bool split = precision == Precision::bf16;
    int64_t n = 0;
    for (Llama model(run.model); const Param& p : model.params().params()) n += p.shape.numel();
    for (const int stage : {1, 2}) {
      for (const int world : {2, 4, 8}) {
        SCOPED_TRACE(cat("zero", stage, " on ", world, " ranks, ", name_of(precision)));
        const double one = static_cast<double>(n), part = one / world;
        const Held theory{one * (split ? 2 : 4), split ? 2 * part : 0, 4 * (stage == 2 ? part : one),
                          8 * part};
        const StrategyOptions options{.bucket_mb = 0.1};
        const std::string name = cat("zero", stage);
        RankOptions meta_options = one_thread(Device::meta());
        meta_options.world = world;
        RankContext meta(meta_options);
        Communicator nobody(meta, make_meta_transport(0, world, {}));
        const auto on_meta = make_strategy(name, options, meta, nobody);
        const MemoryStats predicted = after_two_steps(meta, run, *on_meta);
        expect_held(predicted, theory);
        run_thread_ranks(world, one_thread(), [&](RankContext& ctx, Communicator& comm) {
          const auto strategy = make_strategy(name, options, ctx, comm);
          const MemoryStats seen = after_two_steps(ctx, run, *strategy);
          expect_held(seen, theory);
          for (int t = 0; t < kTagCount; ++t)
            EXPECT_EQ(seen.peak.values[t], predicted.peak.values[t]) << name_of(static_cast<Tag>(t));
          // Gradients in flight: three buckets' memory at most, packed and not, and what they come to.
          if (stage == 2) {
            EXPECT_LT(static_cast<double>(seen.peak[Tag::comm]), 0.75 * 4 * one);
          }
        });
      }
    }
  }
}

}  // namespace
}  // namespace kiln
