// Checkpoints of ranks that hold parts of a model, alone and on a mesh with a strategy that cuts them
// further: what is in the files is what the ranks have, the files are those of a single process, and a run
// resumes from them in any layout.
#include <gtest/gtest.h>

#include <filesystem>

#include "autograd/tape.h"
#include "base/crc32c.h"
#include "base/mapped_file.h"
#include "base/safetensors.h"
#include "dist/comm/threads/thread_group.h"
#include "dist/launch/parallel_rank.h"
#include "model/hf_folder.h"
#include "support/shaken.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/whole_weights.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_names.h"
#include "train/checkpoint/manifest.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

struct Layout {
  int data = 1, tensor = 1;
  const char* strategy = "none";
  std::string str() const { return cat(data, " x ", tensor, " ", strategy); }
};

const std::vector<Layout> kLayouts = {
    {1, 1},          {1, 2},         {1, 4},         {2, 2, "ddp:bucketed"}, {2, 2, "zero1"},
    {2, 2, "zero2"}, {2, 2, "fsdp"}, {3, 2, "fsdp"}, {2, 1, "fsdp"}};

TinyRun tiny(Precision precision, bool tied) {
  TinyRun run;
  run.precision = precision;
  run.model.vocab = 257;  // parts of unequal length
  run.model.tied = tied;
  run.model.d_model = 32;
  run.model.heads = 8;
  run.model.kv_heads = 4;
  run.model.layers = 2;
  run.step.batch = 1;
  // Where a gradient is next to nothing AdamW's first steps are its sign: rounding would decide them.
  run.step.optimizer.adamw.eps = 1e-3;
  return run;
}

// A rank's part of the model, and its step.
struct MeshRank {
  MeshRank(RankContext& c, Communicator& comm, const TinyRun& run, const Layout& layout)
      : ctx(c),
        all(comm),
        place(ctx, all, layout.tensor, layout.strategy),
        model(run.model, place.partition()) {
    ParamLayout kept = layout_for(run.precision, run.step, 2, place.strategy());  // fp32 gradients everywhere
    kept.tensor_ranks = layout.tensor;
    model.params().materialize(ctx, kept);
    place.strategy().attach(model.params());
    step.emplace(ctx, model, place.strategy(), run.step);
  }
  ~MeshRank() { ctx.tape().reset(); }

  CheckpointParts parts() { return {ctx, model, step->optimizer(), nullptr, {}, &all}; }
  void load(const std::string& from) {
    load_checkpoint(from, parts());
    place.strategy().after_update();
    step->restore(read_train_state(from).scalars);
  }
  std::string save(const RunFolder& folder, const TrainState& state) {
    const auto warn = [](const std::string& line) { ADD_FAILURE() << line; };
    if (all.world() == 1) return save_checkpoint(folder, parts(), state, 3, warn);
    return save_checkpoint_of_ranks(ctx.rank() == 0 ? &folder : nullptr, parts(), state, 3, warn);
  }

  RankContext& ctx;
  Communicator& all;
  ParallelRank place;
  Llama model;
  std::optional<TrainStep> step;
};

template <class F>
void on_ranks(const Layout& layout, uint64_t seed, const F& f) {
  RankOptions o;
  o.threads = 1;
  o.seed = seed;
  run_thread_ranks(layout.data * layout.tensor, o, f);
}

struct Part {
  std::vector<double> losses;
  WholeWeights values, m, v;
  std::string checkpoint;
};

// Six batches a step, whatever the layout: `steps` of them, from `from` or from the beginning; then a save.
void train(TinyRun run, const Layout& layout, const std::string& from, int steps, const std::string& to,
           Part& part, int shake = 0) {
  run.step.micro_steps = 6 / layout.data;
  const RunFolder folder(to);
  on_ranks(layout, from.empty() ? 11 : 99, [&](RankContext& ctx, Communicator& all) {
    const Shaken held_up(ctx, shake);
    MeshRank rank(ctx, all, run, layout);
    TrainState state;
    state.identity = {std::string(name_of(run.precision)), ""};
    state.loader.context = run.step.context;
    state.loader.tokens = 1000;
    if (!from.empty()) {
      rank.load(from);
      state.scalars = read_train_state(from).scalars;
    }
    const int64_t first = state.step();
    for (int64_t s = first; s < first + steps; ++s) {
      std::vector<TinyBatch> batches;
      std::vector<HostBatch> views;
      for (int i = 0; i < run.step.micro_steps; ++i)
        batches.push_back(tiny_batch(run, 6 * s + i * layout.data + rank.place.data().rank()));
      for (const TinyBatch& b : batches) views.push_back(b.host());
      rank.step->run(views, run.lr);
      state.scalars = rank.step->finish();
      if (ctx.rank() == 0) part.losses.push_back(state.scalars.loss);
    }
    const ParamStore& params = rank.model.params();
    part.values.take(ctx, params, params.values());
    part.m.take(ctx, params, rank.step->optimizer().state("m"));
    part.v.take(ctx, params, rank.step->optimizer().state("v"));
    const std::string saved = rank.save(folder, state);
    if (ctx.rank() == 0) part.checkpoint = saved;
  });
}

std::map<std::string, uint32_t> hashes(const std::string& folder) {
  std::map<std::string, uint32_t> files;
  for (const auto& e : fs::directory_iterator(folder)) {
    const std::string name = e.path().filename().string();
    if (name == Manifest::kName) continue;  // it has the generation of who wrote it
    files[name] = crc32c(MappedFile(e.path().string()).bytes());
  }
  return files;
}

std::vector<float> moment(const SafetensorsFile& file, const std::string& name) {
  const auto entry = file.header().find(name);
  if (!entry) return {};
  const auto bytes = file.bytes(*entry);
  std::vector<float> values(bytes.size() / sizeof(float));
  to_floats(entry->type, bytes.data(), values);
  return values;
}

// Every tensor on disk, element by element. Of a weight that is kept in halves, `as_kept` makes the upper.
void expect_holds(const Part& part, const auto& as_kept) {
  HfFolder folder(part.checkpoint);
  const SafetensorsFile moments(part.checkpoint + "/" + kOptimizerFile);
  ASSERT_EQ(folder.weights().size(), part.values.count());
  for (const WeightSpec& w : folder.weights()) {
    std::vector<float> stored(static_cast<std::size_t>(w.shape.numel()));
    folder.read(w, 0, stored);
    for (float& x : stored) x = as_kept(x);
    EXPECT_EQ(stored, part.values.whole(w.name)) << w.name;
    EXPECT_EQ(moment(moments, "m." + w.name), part.m.whole(w.name)) << w.name;
    EXPECT_EQ(moment(moments, "v." + w.name), part.v.whole(w.name)) << w.name;
  }
}

class TensorParallelCheckpoint : public testing::TestWithParam<Precision> {};
INSTANTIATE_TEST_SUITE_P(Precisions, TensorParallelCheckpoint,
                         testing::Values(Precision::fp32, Precision::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(TensorParallelCheckpoint, TheFilesHoldWhatTheRanksHave) {
  for (const bool tied : {false, true}) {
    const TinyRun run = tiny(GetParam(), tied);
    for (const Layout& layout : kLayouts) {
      SCOPED_TRACE(cat(layout.str(), tied ? ", tied" : ""));
      const TempFolder temp;
      Part part;
      train(run, layout, "", 2, temp / "run", part);
      ASSERT_TRUE(part.values.complete() && part.m.complete() && part.v.complete());
      EXPECT_EQ(verify_checkpoint(part.checkpoint).step, 2);  // checksums combined from the ranks' parts
      expect_holds(part, [&](float x) {
        return GetParam() == Precision::bf16 ? static_cast<float>(split_float(x).high) : x;
      });
    }
  }
}

// Files that are the same whoever wrote them load the same: so each layout is tested once, going both
// ways, and all pairs of them are covered.
TEST_P(TensorParallelCheckpoint, EveryLayoutTakesUpAndWritesTheFilesOfASingleProcess) {
  for (const bool tied : {false, true}) {
    const TempFolder temp;
    const TinyRun run = tiny(GetParam(), tied);
    Part single;
    train(run, {}, "", 2, temp / "single", single);
    const auto expected = hashes(single.checkpoint);
    ASSERT_EQ(expected.size(), 4u);  // config, weights, moments, state
    const TrainState state = read_train_state(single.checkpoint);
    int number = 0;
    for (const Layout& layout : kLayouts) {
      SCOPED_TRACE(cat(layout.str(), tied ? ", tied" : ""));
      const RunFolder folder(temp / cat("moved-", number++));
      std::vector<std::string> saved(static_cast<std::size_t>(layout.data * layout.tensor));
      on_ranks(layout, 99, [&](RankContext& ctx, Communicator& all) {
        MeshRank rank(ctx, all, run, layout);
        rank.load(single.checkpoint);
        saved[static_cast<std::size_t>(ctx.rank())] = rank.save(folder, state);
      });
      for (const std::string& s : saved) EXPECT_EQ(s, saved[0]);
      EXPECT_EQ(hashes(saved[0]), expected);
      EXPECT_EQ(verify_checkpoint(saved[0]).step, 2);
    }
  }
}

TEST(TensorParallelResume, ARunResumesInAnyLayout) {
  const TinyRun run = tiny(Precision::fp32, false);
  const TempFolder temp;
  Part whole;
  train(run, {}, "", 4, temp / "whole", whole);
  const Layout single, two{1, 2}, mesh{2, 2, "ddp:bucketed"}, sharded{2, 2, "fsdp"};
  int number = 0;
  for (const auto& [before, after] :
       {std::pair(single, two), std::pair(two, single), std::pair(mesh, single), std::pair(single, mesh),
        std::pair(sharded, two), std::pair(two, sharded), std::pair(Layout{2, 2, "zero2"}, Layout{1, 4}),
        std::pair(Layout{2, 1, "fsdp"}, Layout{2, 2, "zero1"})}) {
    SCOPED_TRACE(cat(before.str(), " to ", after.str()));
    Part first, second;
    train(run, before, "", 2, temp / cat("run-", number), first);
    train(run, after, first.checkpoint, 2, temp / cat("run-", number), second);
    ++number;
    ASSERT_EQ(second.losses.size(), 2u);
    for (std::size_t s = 0; s < 2; ++s) {
      EXPECT_NEAR(first.losses[s], whole.losses[s], 1e-5);
      EXPECT_NEAR(second.losses[s], whole.losses[s + 2], 1e-5);
    }
    EXPECT_LT(distance(second.values, whole.values), 1e-4);
    EXPECT_LT(distance(second.m, whole.m), 1e-3);
  }
}

// In the layout it was saved in, to the bit, whatever the timing.
TEST_P(TensorParallelCheckpoint, GoingOnChangesNoBit) {
  const TinyRun run = tiny(GetParam(), false);
  for (const Layout& layout : {Layout{1, 2}, Layout{2, 2, "zero2"}, Layout{2, 2, "fsdp"}}) {
    SCOPED_TRACE(layout.str());
    const TempFolder temp;
    Part whole;
    train(run, layout, "", 4, temp / "whole", whole);
    for (int shake = 1; shake <= 5; ++shake) {
      Part first, second;
      train(run, layout, "", 2, temp / cat("run-", shake), first, shake);
      train(run, layout, first.checkpoint, 2, temp / cat("run-", shake), second, shake);
      EXPECT_EQ(second.losses, std::vector<double>(whole.losses.begin() + 2, whole.losses.end()));
      EXPECT_EQ(hashes(second.checkpoint), hashes(whole.checkpoint));
    }
  }
}

}  // namespace
}  // namespace kiln
