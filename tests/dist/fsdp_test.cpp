// Fully sharded training: whatever the number of ranks, prefetch, recomputation and timing, the same bits.
#include "dist/fsdp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "autograd/tape.h"
#include "dist/comm/thread_group.h"
#include "dist/ddp.h"
#include "dist/gather_full.h"
#include "model/llama.h"
#include "ops/cast/cast.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/elementwise/unary.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/rms_norm/rms_norm.h"
#include "optim/sgd_optimizer.h"
#include "support/fsdp_runs.h"
#include "train/seams.h"

namespace kiln {
namespace {

StrategyOf fsdp(int prefetch) {
  return [prefetch](RankContext& ctx, Communicator& comm) {
    return std::make_unique<FsdpStrategy>(ctx, comm, FsdpOptions{prefetch});
  };
}

RankOptions one_thread() {
  RankOptions o;
  o.threads = 1;
  o.seed = 5;
  return o;
}

// --- the toy of two linear layers, SGD ---------------------------------------------------------------------

constexpr int64_t kVocab = 100, kWidth = 64, kHidden = 128, kBatch = 20, kSeq = 8;

struct Toy {
  Toy(RankContext& ctx, Precision precision, bool sharded) {
    embed = &store.add("embed", {kVocab, kWidth}, {ParamInit::Kind::normal, 1, 3});
    up = &store.add("up", {kHidden, kWidth}, {ParamInit::Kind::normal, 0.1f, 3});
    down = &store.add("down", {kWidth, kHidden}, {ParamInit::Kind::normal, 0.1f, 3});
    norm = &store.add("norm", {kWidth}, {ParamInit::Kind::ones, 0, 0}, false);
    head = &store.add("head", {kVocab, kWidth}, {ParamInit::Kind::normal, 0.1f, 3});
    store.materialize(ctx, {.precision = precision, .sharded = sharded});
  }
  Tensor loss(RankContext& ctx, const Tensor& tokens, const Tensor& targets) const {
    const Tensor x = embedding(ctx, tokens, *embed);
    const Tensor h = linear(ctx, relu(ctx, linear(ctx, cast_for(ctx, x, *up), *up)), *down);
    const Tensor y = rms_norm(ctx, cast(ctx, h, x.dtype()), *norm, 1e-5f);
    return cross_entropy(ctx, linear(ctx, cast_for(ctx, y, *head), *head), targets);
  }
  ParamStore store;
  Param *embed, *up, *down, *norm, *head;
};

struct ToyResult {
  StateBytes weights;
  StateBytes grad_bytes;
};

// Three steps on chunks [first, first + chunks) of the two halves of the batch.
ToyResult train_toy(RankContext& ctx, Communicator& comm, Precision precision, Strategy& strategy, int first,
                    int chunks) {
  Toy toy(ctx, precision, strategy.shards_params());
  strategy.attach(toy.store);
  SgdOptimizer sgd(ctx, toy.store.spans(), {});
  const Tensor scalars = make_step_scalars(ctx);
  StepScalars record;
  record.lr = 0.01;
  ctx.upload(scalars, &record);
  const Tensor tokens = ctx.empty({kBatch / 2, kSeq}, DType::i32),
               targets = ctx.empty({kBatch / 2, kSeq}, DType::i32);
  for (int step = 0; step < 3; ++step) {
    toy.store.begin_step();
    strategy.begin_step();
    for (int c = 0; c < chunks; ++c) {
      strategy.begin_micro_step(c + 1 == chunks);
      std::vector<int32_t> ids(kBatch / 2 * kSeq), next(ids.size());
      for (std::size_t i = 0; i < ids.size(); ++i) {
        ids[i] =
            static_cast<int32_t>((i * 31 + static_cast<std::size_t>(step * 7 + (first + c) * 13)) % kVocab);
        next[i] = (ids[i] * 3 + 1) % static_cast<int32_t>(kVocab);
      }
      ctx.upload(tokens, ids.data());
      ctx.upload(targets, next.data());
      ctx.tape().reset();
      const Tensor loss = toy.loss(ctx, tokens, targets);
      const Tensor half = ctx.empty({1}, loss.dtype());
      const float share = 0.5f;
      ctx.upload(half, &share);
      ctx.tape().backward(loss, half);
    }
    ctx.tape().reset();
    toy.store.finish_gradients(ctx);
    strategy.finish_gradients();
    sgd.step(ctx, scalars);
  }
  ToyResult result;
  result.weights = whole_state(ctx, comm, toy.store, nullptr);
  for (const Param& p : toy.store.params()) {
    const Tensor g = gather_whole(ctx, comm, p, toy.store.local_grad(p));
    EXPECT_EQ(g.shape(), p.shape);
    EXPECT_EQ(g.dtype(), DType::f32);
    result.grad_bytes[p.name] = fetch_bytes(ctx, g);
  }
  return result;
}

ToyResult train_toy_alone(Precision precision) {
  ToyResult result;
  run_thread_ranks(1, one_thread(), [&](RankContext& ctx, Communicator& comm) {
    Strategy plain;
    result = train_toy(ctx, comm, precision, plain, 0, 2);  // both halves, added in the order of the ranks
  });
  return result;
}

std::vector<ToyResult> train_toy_sharded(Precision precision, int prefetch, uint64_t jitter) {
  std::vector<ToyResult> ranks(2);
  run_thread_ranks(2, one_thread(), [&](RankContext& ctx, Communicator& comm) {
    const Jitter noise(ctx, jitter);
    FsdpStrategy strategy(ctx, comm, {prefetch});
    ranks[ctx.rank()] = train_toy(ctx, comm, precision, strategy, ctx.rank(), 1);
  });
  return ranks;
}

double largest_difference(const StateBytes& a, const StateBytes& b) {
  double most = 0;
  for (const auto& [name, bytes] : a) {
    for (std::size_t i = 0; i < bytes.size(); i += 4) {
      float x, y;
      std::memcpy(&x, bytes.data() + i, 4);
      std::memcpy(&y, b.at(name).data() + i, 4);
      most = std::max(most, static_cast<double>(std::abs(x - y)));
    }
  }
  return most;
}

TEST(FsdpToy, TwoRanksEndInTheBitsOfOneProcess) {
  const ToyResult alone = train_toy_alone(Precision::fp32);
  for (uint64_t repeat = 1; repeat <= 5; ++repeat) {
    for (int prefetch : {0, 1, 2}) {
      const auto ranks = train_toy_sharded(Precision::fp32, prefetch, repeat);
      for (const ToyResult& r : ranks) {
        EXPECT_EQ(r.weights, alone.weights) << "prefetch " << prefetch;
        EXPECT_EQ(r.grad_bytes, alone.grad_bytes) << "prefetch " << prefetch;
      }
    }
  }
}

TEST(FsdpToy, HalfPrecisionOnTheWireIsThatOfTheProducts) {
  const ToyResult wide = train_toy_alone(Precision::fp32);
  for (Precision precision : {Precision::fp16, Precision::autocast}) {
    const ToyResult alone = train_toy_alone(precision);
    for (int prefetch : {0, 1}) {
      const auto ranks = train_toy_sharded(precision, prefetch, 1);
      // Cast and then gathered is gathered and then cast.
      EXPECT_EQ(ranks[0].weights, alone.weights) << name_of(precision);
      EXPECT_EQ(ranks[1].weights, alone.weights) << name_of(precision);
      if (precision == Precision::fp16) {
        EXPECT_LT(largest_difference(ranks[0].weights, wide.weights), 1e-4);
      }
    }
  }
}

TEST(FsdpToy, WholeGradientsAreTheSameOnAllRanks) {
  std::vector<std::vector<std::byte>> norms(2);
  run_thread_ranks(2, one_thread(), [&](RankContext& ctx, Communicator& comm) {
    FsdpStrategy strategy(ctx, comm);
    Toy toy(ctx, Precision::fp32, true);
    EXPECT_EQ(toy.norm->shards, 1);
    for (Param* p : {toy.embed, toy.up, toy.down, toy.head}) {
      EXPECT_EQ(p->shards, 2) << p->name;
      EXPECT_EQ(toy.store.local_grad(*p).numel(), p->padded / 2);
      EXPECT_EQ(toy.store.local_grad(*p).dtype(), DType::f32);
    }
    strategy.attach(toy.store);
    toy.store.begin_step();
    strategy.begin_step();
    strategy.begin_micro_step(true);
    std::vector<int32_t> ids(16, 3 + ctx.rank());
    const Tensor tokens = ctx.empty({2, 8}, DType::i32), one = ctx.empty({1}, DType::f32);
    const float share = 1;
    ctx.upload(tokens, ids.data());
    ctx.upload(one, &share);
    ctx.tape().backward(toy.loss(ctx, tokens, tokens), one);
    toy.store.finish_gradients(ctx);
    const auto own = fetch_bytes(ctx, toy.store.local_grad(*toy.norm));
    strategy.finish_gradients();
    norms[ctx.rank()] = fetch_bytes(ctx, toy.store.local_grad(*toy.norm));
    EXPECT_NE(own, norms[ctx.rank()]);  // the other rank's is in it
    ctx.tape().reset();
  });
  EXPECT_EQ(norms[0], norms[1]);
}

// --- the tiny LLaMA ----------------------------------------------------------------------------------------

TinyRun tiny(Precision precision, int micro_steps, Recompute recompute = Recompute::none) {
  TinyRun run;
  run.precision = precision;
  run.model.layers = 2;
  run.model.recompute = recompute;
  run.step.micro_steps = micro_steps;
  run.steps = 3;
  return run;
}

class FsdpOf : public testing::TestWithParam<Precision> {};
INSTANTIATE_TEST_SUITE_P(Precisions, FsdpOf,
                         testing::Values(Precision::fp32, Precision::bf16, Precision::fp16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(FsdpOf, PrefetchAndRecomputeChangeNoBit) {
  for (int world : {2, 3, 4}) {
    for (int micro_steps : {1, 3}) {
      const RanksResult first = train_ranks(world, tiny(GetParam(), micro_steps), fsdp(0));
      for (int prefetch : {0, 1, 2}) {
        for (Recompute r : {Recompute::none, Recompute::block}) {
          const RanksResult again = train_ranks(world, tiny(GetParam(), micro_steps, r), fsdp(prefetch), 1);
          EXPECT_EQ(again.state, first.state)
              << world << " ranks, prefetch " << prefetch << ", " << name_of(r);
          EXPECT_EQ(again.losses, first.losses);
        }
      }
    }
  }
}

TEST_P(FsdpOf, EqualsDataParallelOfTheSameRanks) {
  for (int world : {2, 3, 4}) {
    const TinyRun run = tiny(GetParam(), 1);
    const RanksResult ddp = train_ranks(world, run, make_ddp), sharded = train_ranks(world, run, fsdp(1));
    EXPECT_EQ(sharded.state, ddp.state) << world << " ranks";
    EXPECT_EQ(sharded.losses, ddp.losses);
    for (std::size_t i = 0; i < ddp.norms.size(); ++i)  // summed shard by shard: another order, in double
      EXPECT_NEAR(sharded.norms[i] / ddp.norms[i], 1, 1e-12);
  }
}

// With micro-steps FSDP sums ranks before micro-steps, DDP the other way round.
TEST_P(FsdpOf, EqualsDataParallelToRoundingWithMicroSteps) {
  const TinyRun run = tiny(GetParam(), 3);
  const RanksResult ddp = train_ranks(3, run, make_ddp), sharded = train_ranks(3, run, fsdp(1));
  for (std::size_t i = 0; i < ddp.losses.size(); ++i) {
    EXPECT_NEAR(sharded.losses[i], ddp.losses[i], GetParam() == Precision::fp32 ? 1e-5 : 2e-2);
    EXPECT_NEAR(sharded.norms[i] / ddp.norms[i], 1, GetParam() == Precision::fp32 ? 1e-4 : 2e-2);
  }
}

TEST(Fsdp, TimingChangesNoBit) {
  TinyRun run = tiny(Precision::fp32, 2, Recompute::block);
  run.model.tied = true;
  const RanksResult first = train_ranks(3, run, fsdp(1));
  for (uint64_t repeat = 1; repeat <= 5; ++repeat)
    EXPECT_EQ(train_ranks(3, run, fsdp(1), repeat).state, first.state) << repeat;
}

// A frozen weight is used and has no gradient; views of a packed one are one window.
TEST(Fsdp, ViewsAndTiedWeightsTrainAsInOneProcess) {
  for (bool tied : {false, true}) {
    TinyRun run = tiny(Precision::fp32, 1);
    run.model.tied = tied;
    run.model.fused_qkv = run.model.fused_gate_up = run.model.fused_linear_ce = false;
    const RanksResult ddp = train_ranks(2, run, make_ddp);
    for (int prefetch : {0, 1, 3}) EXPECT_EQ(train_ranks(2, run, fsdp(prefetch)).state, ddp.state);
  }
}

TEST(Fsdp, FrozenWeightsStayAsTheyAre) {
  std::vector<StateBytes> before(2), after(2);
  run_thread_ranks(2, one_thread(), [&](RankContext& ctx, Communicator& comm) {
    const TinyRun run = tiny(Precision::bf16, 1);
    Llama model(run.model);
    for (Param& p : model.params().params()) {
      if (p.name.find("layers.0.") != std::string::npos) p.trainable = false;
    }
    FsdpStrategy strategy(ctx, comm);
    model.params().materialize(ctx, layout_for(run.precision, run.step, 2, true));
    strategy.attach(model.params());
    TrainStep step(ctx, model, strategy, run.step);
    before[ctx.rank()] = whole_state(ctx, comm, model.params(), nullptr);
    for (int s = 0; s < 3; ++s) {
      const TinyBatch b = tiny_batch(run, 2 * s + ctx.rank());
      const HostBatch view = b.host();
      step.run({&view, 1}, run.lr);
    }
    step.finish();
    after[ctx.rank()] = whole_state(ctx, comm, model.params(), nullptr);
    ctx.tape().reset();
  });
  for (const auto& [name, bytes] : before[0]) {
    const bool frozen = name.find("layers.0.") != std::string::npos;
    if (frozen) {
      EXPECT_EQ(after[0].at(name), bytes) << name;
    }
    EXPECT_EQ(after[0].at(name), after[1].at(name)) << name;
  }
  EXPECT_NE(after[0].at("low.lm_head.weight"), before[0].at("low.lm_head.weight"));
}

// --- messages, order, observers ----------------------------------------------------------------------------

struct Watcher final : GatherObserver {
  void on_gather(const GatherRecord& r) override { records.push_back(r); }
  void on_order_change(std::string_view what) override { changes.emplace_back(what); }
  std::vector<GatherRecord> records;
  std::vector<std::string> changes;
};

// Forward: embedding, four weights a layer, head. Backward: the four again; the embedding's and the fused
// head's backward read no weight, and where backward begins with the weight forward ended with, it is there
// still. With recompute each block is run again: its four once more, of which the last is backward's first.
TEST(Fsdp, EachWeightIsGatheredOncePerWindow) {
  struct Case {
    Recompute recompute;
    int64_t per_micro_step;
  };
  const int64_t L = 2;
  for (const Case c :
       {Case{Recompute::none, 1 + 4 * L + 1 + 4 * L}, Case{Recompute::block, 1 + 4 * L + 1 + 7 * L}}) {
    for (int prefetch : {0, 1, 2}) {
      TinyRun run = tiny(Precision::fp32, 2, c.recompute);
      run.steps = 3;
      int64_t gathers = 0, windows = 0, changes = 0;
      std::mutex mutex;
      train_ranks(2, run, fsdp(prefetch), 0, [&](Strategy& s) {
        const std::lock_guard lock(mutex);
        const GatherSlots& slots = dynamic_cast<FsdpStrategy&>(s).slots();
        gathers = slots.gathers();
        windows = slots.order().size();
        changes = slots.order().changes();
      });
      EXPECT_EQ(windows, c.per_micro_step);
      EXPECT_EQ(gathers, c.per_micro_step * 2 * 3) << "prefetch " << prefetch;
      EXPECT_EQ(changes, 0);
    }
  }
}

TEST(Fsdp, SaysOfEachGatherWhenItWasQueuedReadyAndWanted) {
  for (int prefetch : {0, 1}) {
    std::vector<Watcher> watchers(2);
    const TinyRun run = tiny(Precision::autocast, 1);
    train_ranks(2, run, [&](RankContext& ctx, Communicator& comm) {
      auto s = std::make_unique<FsdpStrategy>(ctx, comm, FsdpOptions{prefetch});
      s->observe(&watchers[ctx.rank()]);
      return s;
    });
    const std::vector<GatherRecord>& records = watchers[0].records;
    ASSERT_EQ(records.size(), watchers[1].records.size());
    ASSERT_EQ(records.size(), 3u * 18u);
    for (std::size_t i = 0; i < records.size(); ++i) {
      const GatherRecord& r = records[i];
      EXPECT_EQ(r.weight, watchers[1].records[i].weight);
      EXPECT_LE(r.queued, r.wanted + (r.ahead ? 0 : 1000000000));
      EXPECT_LE(r.queued, r.ready);
      EXPECT_EQ(r.ahead, prefetch > 0 && i >= 18) << i;  // the first micro-step teaches the order
      EXPECT_EQ(r.phase, i % 18 < 10 ? Phase::forward : Phase::backward) << i;
      EXPECT_EQ(r.as, r.weight == "model.embed_tokens.weight" ? DType::f32 : DType::bf16) << r.weight;
    }
    EXPECT_TRUE(watchers[0].changes.empty());
  }
}

// Every other micro-step leaves the order: what was gathered ahead is dropped, results stay right, and the
// change is told.
TEST(Fsdp, AnotherOrderFallsBackToGatheringOnDemand) {
  std::vector<Watcher> watchers(2);
  run_thread_ranks(2, one_thread(), [&](RankContext& ctx, Communicator& comm) {
    ParamStore store;
    std::vector<Param*> w;
    for (int i = 0; i < 4; ++i) w.push_back(&store.add(cat("w", i), {3 + i, 5}, {}));
    store.materialize(ctx, {Precision::fp32, true});
    FsdpStrategy strategy(ctx, comm, {2});
    strategy.observe(&watchers[ctx.rank()]);
    strategy.attach(store);
    ParamStore full;
    for (int i = 0; i < 4; ++i) full.add(cat("w", i), {3 + i, 5}, {});
    full.materialize(ctx);
    const std::vector<std::vector<int>> orders = {{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 2, 1, 3}, {0, 2, 1, 3},
                                                  {0},          {},           {3, 3, 0, 1}, {3, 3, 0, 1}};
    for (const std::vector<int>& uses : orders) {
      strategy.begin_step();
      strategy.begin_micro_step(true);
      for (const int i : uses) {
        const ParamUse use(*w[i], false);
        EXPECT_EQ(fetch_bytes(ctx, use.tensor()), fetch_bytes(ctx, full.params()[i].value)) << i;
      }
      strategy.finish_gradients();
      const ParamUse outside(*w[3], false);  // between steps too
      EXPECT_EQ(fetch_bytes(ctx, outside.tensor()), fetch_bytes(ctx, full.params()[3].value));
    }
  });
  for (const Watcher& w : watchers) {
    EXPECT_EQ(w.changes, (std::vector<std::string>{"use 2 is of w2 as fp32, expected w1 as fp32",
                                                   "the micro-step ended after 1 of 4 weights",
                                                   "the micro-step ended after 0 of 1 weights"}));
  }
}

// Two weights in one op where there is one slot, and both at once again inside the window of the first.
TEST(Fsdp, MoreWeightsAtOnceThanSlotsAreGatheredBeside) {
  run_thread_ranks(2, one_thread(), [&](RankContext& ctx, Communicator& comm) {
    for (int prefetch : {0, 1}) {
      ParamStore store, full;
      for (ParamStore* s : {&store, &full}) {
        for (int i = 0; i < 3; ++i) s->add(cat("w", i), {5, 3 + i}, {});
      }
      store.materialize(ctx, {Precision::fp32, true});
      full.materialize(ctx);
      FsdpStrategy strategy(ctx, comm, {prefetch});
      strategy.attach(store);
      auto& w = store.params();
      for (int step = 0; step < 3; ++step) {
        strategy.begin_step();
        strategy.begin_micro_step(true);
        const auto check = [&](const ParamUse& use, int i) {
          EXPECT_EQ(fetch_bytes(ctx, use.tensor()), fetch_bytes(ctx, full.params()[i].value)) << i;
        };
        {
          const ParamUse a(w[0], false), b(w[1], false), c(w[2], false), again(w[0], false);
          check(a, 0), check(b, 1), check(c, 2), check(again, 0);
        }
        const ParamUse last(w[1], false);
        check(last, 1);
        strategy.finish_gradients();
      }
    }
  });
}

// --- failures ----------------------------------------------------------------------------------------------

TEST(Fsdp, ARankThatThrowsWhileOthersGatherEndsAllAndLeavesNothing) {
  struct Thrower final : OpObserver {
    Thrower(RankContext& c, int after) : ctx(c), left(c.rank() == 1 ? after : -1) { ctx.add_observer(this); }
    ~Thrower() override { ctx.remove_observer(this); }
    void on_op_end(RankContext&, const OpEvent&) override {
      if (left >= 0 && left-- == 0) throw Error("rank 1 had enough");
    }
    RankContext& ctx;
    int left;
  };
  for (int after : {0, 7, 60, 75, 90, 111}) {
    CountedMemory memory;
    std::string said;
    try {
      run_thread_ranks(3, memory.options(), [&](RankContext& ctx, Communicator& comm) {
        const TinyRun run = tiny(Precision::fp32, 2);
        FsdpStrategy strategy(ctx, comm, {2});
        const Thrower thrower(ctx, after);
        train_tiny(ctx, run, strategy);
      });
    } catch (const Error& e) {
      said = e.what();
    }
    EXPECT_EQ(said, "rank 1 had enough") << after;
    EXPECT_EQ(memory.blocks, 0) << "left by a failure after " << after << " ops";
  }
}

TEST(Fsdp, NegativePrefetchIsRefused) {
  run_thread_ranks(1, one_thread(), [](RankContext& ctx, Communicator& comm) {
    EXPECT_THROW(FsdpStrategy(ctx, comm, {-1}), Error);
  });
}

// --- whole again -------------------------------------------------------------------------------------------

TEST(Fsdp, TheFullModelIsGatheredToTheBit) {
  for (Precision precision : {Precision::fp32, Precision::bf16, Precision::pure_bf16}) {
    run_thread_ranks(3, one_thread(), [&](RankContext& ctx, Communicator& comm) {
      const TinyRun run = tiny(precision, 1);
      Llama sharded(run.model), full(run.model), drawn(run.model), other(run.model);
      sharded.params().materialize(ctx, {.precision = precision, .sharded = true});
      drawn.params().materialize(ctx, {.precision = precision});
      full.params().materialize(ctx, {.precision = precision});
      for (const Tensor& t : {full.params().values(), full.params().low()}) {
        if (t.defined()) ctx.backend().zero(t.raw(), t.bytes().value, ctx.compute());
      }
      gather_full(ctx, comm, sharded.params(), full.params());
      EXPECT_EQ(fetch_bytes(ctx, full.params().values()), fetch_bytes(ctx, drawn.params().values()));
      EXPECT_EQ(fetch_bytes(ctx, full.params().low()), fetch_bytes(ctx, drawn.params().low()));
      other.params().materialize(ctx, {.precision = Precision::autocast});
      EXPECT_THROW(gather_full(ctx, comm, sharded.params(), other.params()), Error);
    });
  }
}

}  // namespace
}  // namespace kiln
