// When FSDP gathers: how often, in what order, what is reported, and what happens when a rank fails
// meanwhile.
#include "dist/strategy/fsdp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "autograd/tape.h"
#include "dist/comm/threads/thread_group.h"
#include "model/llama.h"
#include "support/fsdp_runs.h"
#include "train/seams.h"

namespace kiln {
namespace {

TinyRun tiny(Precision precision, int micro_steps, Recompute recompute = Recompute::none) {
  TinyRun run;
  run.precision = precision;
  run.model.layers = 2;
  run.model.recompute = recompute;
  run.step.micro_steps = micro_steps;
  run.steps = 3;
  return run;
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
  for (const Case& c :
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
// change is reported.
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
      if (left < 0) return;
      --left;
      if (left < 0) throw Error("rank 1 had enough");
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

}  // namespace
}  // namespace kiln
