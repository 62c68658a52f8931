// A checkpoint is the same files whatever the state is spread over, and any layout loads any other's:
// {every rank has all, moments cut, everything cut} x {1, 2, 4} ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/crc32c.h"
#include "data/load_tokenizer.h"
#include "dist/comm/threads/thread_group.h"
#include "dist/strategy/ddp.h"
#include "dist/strategy/fsdp.h"
#include "dist/strategy/strategies.h"
#include "model/hf_folder.h"
#include "support/fsdp_runs.h"
#include "support/temp_folder.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_manager.h"
#include "train/checkpoint/checkpoint_names.h"
#include "train/checkpoint/manifest.h"
#include "train/trainer.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

enum class Spread { whole, moments, all };

struct Layout {
  Spread spread;
  int world;
  std::string str() const {
    constexpr const char* kNames[] = {"whole", "moments cut", "all cut"};
    return cat(kNames[static_cast<int>(spread)], " on ", world);
  }
};

std::vector<Layout> layouts() {
  std::vector<Layout> all;
  for (const Spread s : {Spread::whole, Spread::moments, Spread::all}) {
    for (const int world : {1, 2, 4}) all.push_back({s, world});
  }
  return all;
}

RankOptions ranks() {
  RankOptions o;
  o.threads = 1;
  o.seed = 99;  // other initial values than those of the run that is loaded
  return o;
}

TinyRun tiny(Precision precision) {
  TinyRun run;
  run.precision = precision;
  run.model.layers = 2;
  run.steps = 2;
  return run;
}

// A rank's share of the arena, cut with no regard for where parameters begin.
std::vector<ParamSpan> cut(std::vector<ParamSpan> spans, int64_t total, int rank, int world) {
  const int64_t begin = total * rank / world, end = total * (rank + 1) / world;
  std::vector<ParamSpan> mine;
  for (ParamSpan& s : spans) {
    const int64_t first = std::max(begin, s.offset), last = std::min(end, s.offset + s.value.numel());
    if (first >= last) continue;
    const int64_t at = first - s.offset, n = last - first;
    s.value = s.value.narrow(0, at, n);
    s.grad = s.grad.narrow(0, at, n);
    if (s.low.defined()) s.low = s.low.narrow(0, at, n);
    s.offset = first;
    mine.push_back(std::move(s));
  }
  return mine;
}

// One rank's part of a state that is not trained.
struct RankState {
  RankState(RankContext& c, Communicator& communicator, const TinyRun& run, Spread spread)
      : ctx(c), comm(communicator), model(run.model) {
    ParamLayout layout = layout_for(run.precision, run.step, 2, spread == Spread::all);
    model.params().materialize(ctx, layout);
    auto spans = model.params().spans();
    if (spread == Spread::moments)
      spans = cut(std::move(spans), model.params().total(), ctx.rank(), ctx.world());
    optimizer.emplace(ctx, std::move(spans), AdamWOptions{});
  }
  CheckpointParts parts() { return {ctx, model, *optimizer, nullptr, {}, &comm}; }

  RankContext& ctx;
  Communicator& comm;
  Llama model;
  std::optional<AdamWOptimizer> optimizer;
};

void no_warning(const std::string& line) { ADD_FAILURE() << line; }

// Loads `from` into `layout` and saves it into `to`; returns the new folder.
std::string move_state(const std::string& from, const std::string& to, const TinyRun& run,
                       const Layout& layout) {
  const TrainState state = read_train_state(from);
  const RunFolder folder(to);
  std::vector<std::string> saved(layout.world);
  run_thread_ranks(layout.world, ranks(), [&](RankContext& ctx, Communicator& comm) {
    RankState s(ctx, comm, run, layout.spread);
    load_checkpoint(from, s.parts());
    saved[ctx.rank()] =
        save_checkpoint_of_ranks(ctx.rank() == 0 ? &folder : nullptr, s.parts(), state, 3, no_warning);
  });
  for (const std::string& s : saved) EXPECT_EQ(s, saved[0]);
  return saved[0];
}

std::map<std::string, uint32_t> hashes(const std::string& folder) {
  std::map<std::string, uint32_t> files;
  for (const auto& e : fs::directory_iterator(folder)) {
    const std::string name = e.path().filename().string();
    if (name == Manifest::kName) continue;  // it has the generation of who wrote it
    const MappedFile file(e.path().string());
    files[name] = crc32c(file.bytes());
  }
  return files;
}

// What a plain process saves after two steps, without a tokenizer.
std::string plain_checkpoint(const TinyRun& run, const RunFolder& folder) {
  Trainer t(run);
  for (int i = 0; i < run.steps; ++i) t.train(i);
  TrainState state;
  state.scalars = t.step->finish();
  state.identity = {std::string(name_of(run.precision)), ""};
  state.loader.context = run.step.context;
  state.loader.tokens = 1000;
  return save_checkpoint(folder, {t.ctx, t.model, t.step->optimizer(), nullptr, {}}, state, 3, no_warning);
}

class Resharding : public testing::TestWithParam<Precision> {};
INSTANTIATE_TEST_SUITE_P(Precisions, Resharding, testing::Values(Precision::fp32, Precision::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(Resharding, EveryLayoutTakesUpEveryOthers) {
  const TempFolder temp;
  const TinyRun run = tiny(GetParam());
  const RunFolder plain(temp / "plain");
  const std::string reference = plain_checkpoint(run, plain);
  const auto expected = hashes(reference);
  ASSERT_EQ(expected.size(), 4u);  // config, weights, moments, state
  int number = 0;
  for (const Layout& from : layouts()) {
    const std::string first = move_state(reference, temp / cat("from-", number++), run, from);
    EXPECT_EQ(hashes(first), expected) << from.str();
    EXPECT_EQ(verify_checkpoint(first).step, 2);  // every checksum, joined from the ranks' pieces, is right
    // Both precisions through all pairs would be twice the work for the same arithmetic.
    if (GetParam() != Precision::fp32 && from.world == 4) continue;
    for (const Layout& to : layouts()) {
      const std::string second = move_state(first, temp / cat("to-", number++), run, to);
      EXPECT_EQ(hashes(second), expected) << from.str() << " to " << to.str();
    }
  }
}

// What sample, eval and convert read is what transformers reads: a Hugging Face folder.
TEST_P(Resharding, WhatRanksWroteIsAHuggingFaceFolder) {
  const TempFolder temp;
  const TinyRun run = tiny(GetParam());
  const RunFolder plain(temp / "plain");
  const std::string reference = plain_checkpoint(run, plain);
  const std::string sharded = move_state(reference, temp / "ranks", run, {Spread::all, 3});
  HfFolder a(reference), b(sharded);
  for (const WeightSpec& w : a.weights()) {
    std::vector<float> x(static_cast<std::size_t>(w.shape.numel())), y(x.size());
    a.read(w, 0, x);
    b.read(w, 0, y);
    EXPECT_EQ(x, y) << w.name;
  }
}

// Trains on, from `from` or from the beginning; returns the losses.
std::vector<double> go_on(const TinyRun& run, const StrategyOf& make, int world, const std::string& from,
                          int first, const RunFolder* save) {
  std::vector<double> losses;
  RankOptions options = ranks();
  options.seed = 11;
  run_thread_ranks(world, options, [&](RankContext& ctx, Communicator& comm) {
    Llama model(run.model);
    const auto strategy = make(ctx, comm);
    model.params().materialize(ctx, layout_for(run.precision, run.step, world, strategy->shards_params()));
    strategy->attach(model.params());
    TrainStep step(ctx, model, *strategy, run.step);
    const CheckpointParts parts{ctx, model, step.optimizer(), nullptr, {}, &comm};
    if (!from.empty()) {
      load_checkpoint(from, parts);
      strategy->after_update();  // a rank may have read no more than it updates
      step.restore(read_train_state(from).scalars);
    }
    for (int s = first; s < first + run.steps; ++s) {
      const TinyBatch b = tiny_batch(run, s * world + ctx.rank());
      const HostBatch view = b.host();
      step.run({&view, 1}, run.lr);
      const double loss = step.finish().loss;
      if (ctx.rank() == 0) losses.push_back(loss);
    }
    if (save != nullptr) {
      TrainState state;
      state.loader.context = run.step.context;
      state.loader.tokens = 1000;
      state.scalars = step.finish();
      save_checkpoint_of_ranks(ctx.rank() == 0 ? save : nullptr, parts, state, 3, no_warning);
    }
    ctx.tape().reset();
  });
  return losses;
}

std::unique_ptr<Strategy> make_ddp(RankContext& ctx, Communicator& comm) {
  return std::make_unique<DdpStrategy>(ctx, comm);
}
std::unique_ptr<Strategy> make_fsdp(RankContext& ctx, Communicator& comm) {
  return std::make_unique<FsdpStrategy>(ctx, comm);
}

TEST_P(Resharding, ARunResumesUnderAnotherStrategyBitForBit) {
  const TempFolder temp;
  TinyRun run = tiny(GetParam());
  const RunFolder straight(temp / "straight"), half(temp / "half"), rest(temp / "rest");
  run.steps = 4;
  const auto all = go_on(run, make_fsdp, 2, "", 0, &straight);
  run.steps = 2;
  go_on(run, make_fsdp, 2, "", 0, &half);
  const std::string middle = half.checkpoints() + "/step-00000002";
  EXPECT_EQ(go_on(run, make_fsdp, 2, middle, 2, nullptr), std::vector<double>(all.begin() + 2, all.end()));
  EXPECT_EQ(go_on(run, make_ddp, 2, middle, 2, &rest), std::vector<double>(all.begin() + 2, all.end()));
  const std::string name = "/step-00000004";
  EXPECT_EQ(hashes(rest.checkpoints() + name).at("model.safetensors"),
            hashes(straight.checkpoints() + name).at("model.safetensors"));
  EXPECT_EQ(hashes(rest.checkpoints() + name).at("optimizer.safetensors"),
            hashes(straight.checkpoints() + name).at("optimizer.safetensors"));
}

TEST_P(Resharding, SgdsMomentumGoesFromFsdpToZeroAndDdpBitForBit) {
  const TempFolder temp;
  TinyRun run = tiny(GetParam());
  run.step.optimizer = {.name = "sgd", .adamw = {}, .sgd = {.momentum = 0.9, .decay = 0.01}};
  const RunFolder half(temp / "half");
  run.steps = 4;
  const auto all = go_on(run, make_fsdp, 2, "", 0, nullptr);
  run.steps = 2;
  go_on(run, make_fsdp, 2, "", 0, &half);
  const std::vector<double> wanted(all.begin() + 2, all.end());
  const std::string middle = half.checkpoints() + "/step-00000002";
  EXPECT_EQ(go_on(run, make_fsdp, 2, middle, 2, nullptr), wanted);
  EXPECT_EQ(go_on(run, make_ddp, 2, middle, 2, nullptr), wanted);
  const auto zero1 = [](RankContext& ctx, Communicator& comm) {
    return make_strategy("zero1", {}, ctx, comm);
  };
  EXPECT_EQ(go_on(run, zero1, 2, middle, 2, nullptr), wanted);
}

TEST(ShardedCheckpoint, WrongShapesAndTypesAreRefusedWithBothValues) {
  const TempFolder temp;
  TinyRun run = tiny(Precision::fp32);
  const RunFolder plain(temp / "plain");
  const std::string at = plain_checkpoint(run, plain);
  ModelConfig other = run.model;
  other.d_ff = 41;
  const RunIdentity same = read_train_state(at).identity;
  const std::string wide = KILN_ERROR_OF((check_same_run(at, other, same), 0));
  EXPECT_NE(wide.find("d_ff 40; this run has 41"), std::string::npos) << wide;
  const std::string type = KILN_ERROR_OF((check_same_run(at, run.model, {"bf16", ""}), 0));
  EXPECT_NE(type.find("the precision fp32; this run has bf16"), std::string::npos) << type;
  const std::string rule = KILN_ERROR_OF((check_same_run(at, run.model, {"fp32", "", "sgd"}), 0));
  EXPECT_NE(rule.find("the optimizer adamw; this run has sgd"), std::string::npos) << rule;
  // One that does not ask first finds out from the files.
  run.model.d_ff = 41;
  run_thread_ranks(2, ranks(), [&](RankContext& ctx, Communicator& comm) {
    RankState s(ctx, comm, run, Spread::all);
    const std::string said = KILN_ERROR_OF((load_checkpoint(at, s.parts()), 0));
    EXPECT_NE(said.find("[40, 24]"), std::string::npos) << said;
    EXPECT_NE(said.find("[41, 24]"), std::string::npos) << said;
  });
}

// Where a rank cannot write, all are notified, nothing is left, and the run continues.
TEST(ShardedCheckpoint, ASaveThatFailsFailsOnEveryRankAndLeavesNoTrace) {
  const TempFolder temp;
  const TinyRun run = tiny(Precision::fp32);
  const RunFolder folder(temp / "run");
  std::vector<std::string> said(2), warned(2);
  run_thread_ranks(2, ranks(), [&](RankContext& ctx, Communicator& comm) {
    RankState s(ctx, comm, run, Spread::all);
    CheckpointManager saver(ctx.rank() == 0 ? &folder : nullptr, s.parts(), {},
                            [&](const std::string& line) { warned[ctx.rank()] = line; });
    TrainState state;
    state.loader.context = 1;
    state.loader.tokens = 1000;
    state.scalars.attempt = 1;
    saver.save(state);
    EXPECT_FALSE(saver.error());
    // A folder is where a file should be made.
    if (ctx.rank() == 0)
      fs::create_directories(folder.checkpoints() + cat("/step-00000002.tmp.", folder.generation()) +
                             "/optimizer.safetensors");
    state.scalars.attempt = 2;
    saver.save(state);
    if (saver.error()) said[ctx.rank()] = saver.error()->what();
    state.scalars.attempt = 3;
    saver.save(state);
    EXPECT_FALSE(saver.error());
  });
  EXPECT_EQ(said[0].find("cannot open"), 0u) << said[0];
  EXPECT_EQ(said[1].find("rank 0 failed: cannot open"), 0u) << said[1];
  EXPECT_NE(warned[1].find("STEP 2 WAS NOT SAVED"), std::string::npos) << warned[1];
  EXPECT_EQ(checkpoint_steps(folder.checkpoints()), (std::vector<int64_t>{3, 1}));
  EXPECT_FALSE(fs::exists(folder.checkpoints() + cat("/step-00000002.tmp.", folder.generation())));
}

TEST(ShardedCheckpoint, RanksThatDoNotMakeUpAStateAreTold) {
  const TempFolder temp;
  const TinyRun run = tiny(Precision::fp32);
  const RunFolder folder(temp / "run");
  run_thread_ranks(2, ranks(), [&](RankContext& ctx, Communicator& comm) {
    RankState s(ctx, comm, run, Spread::all);
    auto spans = s.model.params().spans();
    std::erase_if(spans, [&](const ParamSpan& p) { return ctx.rank() == 1 && p.name == "lm_head.weight"; });
    s.optimizer.emplace(ctx, std::move(spans), AdamWOptions{});
    TrainState state;
    const std::string said = KILN_ERROR_OF(
        save_checkpoint_of_ranks(ctx.rank() == 0 ? &folder : nullptr, s.parts(), state, 3, no_warning));
    EXPECT_NE(said.find("the ranks do not make up m.lm_head.weight: after element 732 of 1464 there is none"),
              std::string::npos)
        << said;
  });
  EXPECT_TRUE(checkpoint_steps(folder.checkpoints()).empty());
}

// One part of a run of two sharded ranks: resumes the newest checkpoint, trains up to a step, saving each.
// For faults_while_saving.sh, which kills it or lets its calls fail.
TEST(ShardedCheckpoint, AStepOfTheFaultLoop) {
  const char* where = std::getenv("KILN_FAULT_RUN");
  const char* steps = std::getenv("KILN_FAULT_STEPS");
  if (where == nullptr || steps == nullptr) GTEST_SKIP() << "run by faults_while_saving.sh";
  const TinyRun run = tiny(Precision::fp32);
  int64_t now = 0;
  try {
    const RunFolder folder(where);
    const auto found = newest_checkpoint(folder.checkpoints(), {});
    TrainState state;
    state.loader.context = 1;
    state.loader.tokens = 1000;
    if (found) state = read_train_state(*found);
    clear_leftovers(folder, state.step());
    if (found) retire_checkpoints(folder, state.step(), 2, {});
    const int64_t first = state.step();
    RankOptions options = ranks();
    options.seed = 11;
    run_thread_ranks(2, options, [&](RankContext& ctx, Communicator& comm) {
      Llama model(run.model);
      FsdpStrategy strategy(ctx, comm);
      model.params().materialize(ctx, layout_for(run.precision, run.step, 2, true));
      strategy.attach(model.params());
      TrainStep step(ctx, model, strategy, run.step);
      const CheckpointParts parts{ctx, model, step.optimizer(), nullptr, {}, &comm};
      if (found) {
        load_checkpoint(*found, parts);
        step.restore(state.scalars);
      }
      for (int64_t s = first; s < std::atoll(steps); ++s) {
        const TinyBatch b = tiny_batch(run, s * 2 + ctx.rank());
        const HostBatch view = b.host();
        step.run({&view, 1}, run.lr);
        TrainState mine = state;
        mine.scalars = step.finish();
        save_checkpoint_of_ranks(ctx.rank() == 0 ? &folder : nullptr, parts, mine, 2, {});
        if (ctx.rank() == 0) ++now;
      }
      ctx.tape().reset();
    });
  } catch (const Error& e) {
    std::fprintf(stderr, "kiln: %s\n", e.what());
    ADD_FAILURE() << e.what();
  }
  std::printf("\"steps_now\": %lld\n", static_cast<long long>(now));
}

}  // namespace
}  // namespace kiln
