#include "train/run/train.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/json.h"
#include "data/tokenize.h"
#include "kiln/console/train_view.h"
#include "support/temp_folder.h"

namespace kiln::cli {
namespace {

struct Record final : TrainView {
  TrainSetup setup;
  std::vector<double> losses;
  std::vector<Evaluation> evaluations;
  MemoryStats memory;
  void on_setup(const TrainRequest&, const TrainSetup& s) override { setup = s; }
  void on_step(const StepReport& r) override { losses.push_back(r.loss); }
  void on_evaluation(int64_t, const Evaluation& e) override { evaluations.push_back(e); }
  void on_memory(const MemoryStats& m) override { memory = m; }
};

std::string rhyme() {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the cat sat on the mat and the dog sat on the log\n";
  return text;
}

TrainRequest small(const std::string& text) {
  TrainRequest r;
  r.run = std::filesystem::path(text).parent_path() / "run";
  r.text = text;
  r.steps = 30;
  r.batch = 2;
  r.context = 32;
  r.lr = 5e-3;
  r.threads = 1;
  r.seed = 3;
  return r;
}

Record run(const TrainRequest& r) {
  Record record;
  const std::atomic<bool> stop{false};
  TrainRequest fresh = r;
  fresh.fresh = true;
  EXPECT_EQ(train(fresh, record, stop).steps, r.steps);
  return record;
}

TEST(Train, LearnsATextAndSaysWhatItIs) {
  const TempFolder folder;
  folder.write("rhyme.txt", rhyme());
  TrainRequest r = small(folder / "rhyme.txt");
  r.eval_every = 10;
  const Record record = run(r);
  ASSERT_EQ(record.losses.size(), 30u);
  EXPECT_LT(record.losses.back(), 0.6 * record.losses.front());
  ASSERT_EQ(record.evaluations.size(), 3u);
  EXPECT_LT(record.evaluations[2].loss, record.evaluations[0].loss);
  EXPECT_EQ(record.setup.model.vocab, 257);  // bytes and the end of a text
  EXPECT_EQ(record.setup.tokens_per_step, 64);
  EXPECT_GT(record.setup.train_tokens, 8 * record.setup.validation_tokens);
  EXPECT_GT(record.setup.step_flops, 6.0 * 64 * static_cast<double>(record.setup.parameters) / 2);
}

TEST(Train, LearnsKilnsOwnSourcesWithAVocabularyOfTheirOwn) {
  const TempFolder folder;
  TrainRequest r = small("");
  r.run = folder / "run";
  r.train_bpe = 400;
  const Record record = run(r);
  EXPECT_EQ(record.setup.model.vocab, 400);
  EXPECT_EQ(record.setup.text, "kiln's own sources");
  EXPECT_LT(record.losses.back(), 0.9 * record.losses.front());
}

TEST(Train, TakesTheMemoryItSaidItWould) {
  const TempFolder folder;
  folder.write("rhyme.txt", rhyme());
  TrainRequest r = small(folder / "rhyme.txt");
  r.steps = 3;
  for (const char* precision : {"fp32", "bf16"}) {
    for (const char* recompute : {"none", "nested"}) {
      for (int micro_steps : {1, 3}) {
        r.precision = precision;
        r.recompute = recompute;
        r.micro_steps = micro_steps;
        const Record record = run(r);
        EXPECT_EQ(record.setup.memory.peak, record.memory.peak)
            << precision << " " << recompute << micro_steps;
        EXPECT_EQ(record.setup.memory.peak_total, record.memory.peak_total) << precision << " " << recompute;
        EXPECT_EQ(record.setup.groups.total(), record.setup.parameters);
      }
    }
  }
}

TEST(Train, ThreadsRecomputeAndRepetitionChangeNoBit) {
  const TempFolder folder;
  folder.write("rhyme.txt", rhyme());
  const TrainRequest r = small(folder / "rhyme.txt");
  const std::vector<double> losses = run(r).losses;
  EXPECT_EQ(run(r).losses, losses);
  TrainRequest other = r;
  other.threads = 3;
  EXPECT_EQ(run(other).losses, losses);
  other = r;
  other.recompute = "nested";
  EXPECT_EQ(run(other).losses, losses);
  other = r;
  other.seed = 4;
  EXPECT_NE(run(other).losses, losses);
}

TEST(Train, HalfPrecisionFollowsFullPrecision) {
  const TempFolder folder;
  folder.write("rhyme.txt", rhyme());
  TrainRequest r = small(folder / "rhyme.txt");
  const std::vector<double> full = run(r).losses;
  r.precision = "bf16";
  const std::vector<double> half = run(r).losses;
  EXPECT_NE(half, full);
  EXPECT_NEAR(half.front(), full.front(), 4e-3);  // three times what is seen, of losses of 5.6
  EXPECT_NEAR(half.back(), full.back(), 0.03);
}

TEST(Train, EveryPrecisionAndPresetCanBeNamed) {
  const TempFolder folder;
  folder.write("rhyme.txt", rhyme());
  TrainRequest r = small(folder / "rhyme.txt");
  r.steps = 5;
  const std::vector<double> full = run(r).losses;
  for (const char* precision : {"bf16", "autocast", "pure-bf16", "fp16"}) {
    for (const char* preset : {"optimized", "baseline"}) {
      r.precision = precision;
      r.preset = preset;
      const std::vector<double> losses = run(r).losses;
      EXPECT_NEAR(losses.back(), full.back(), 0.015) << precision << " " << preset;  // 0.005 is seen
    }
  }
  r.precision = "fp32";
  r.variants = "linear_cross_entropy=fused,qkv=fused";
  r.recompute = "every:2";
  EXPECT_NEAR(run(r).losses.back(), full.back(), 1e-5);  // 4e-7 is seen
}

TEST(Train, TokensThatWereMadeBeforeGiveTheSameRun) {
  const TempFolder folder;
  folder.write("rhyme.txt", rhyme());
  TrainRequest r = small(folder / "rhyme.txt");
  r.held_out = 0.05;
  const std::vector<double> from_text = run(r).losses;
  (void)tokenize({.text = r.text, .out = folder / "tokens", .validation = 0.05, .threads = 1},
                 [](const std::string&, double, const std::string&) {});
  r.text = folder / "tokens";
  EXPECT_EQ(run(r).losses, from_text);
}

TEST(Train, EveryStepAndEvaluationIsALineOfTheMetrics) {
  const TempFolder folder;
  folder.write("rhyme.txt", rhyme());
  TrainRequest r = small(folder / "rhyme.txt");
  r.steps = 4;
  {
    ConsoleView view;
    const std::atomic<bool> stop{false};
    testing::internal::CaptureStderr();
    train(r, view, stop);
    view.draw_losses();
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("step 4/4  loss "), std::string::npos) << said;
    EXPECT_GT(view.tokens_per_second(), 0);
    EXPECT_GT(view.of_peak(), 0);
  }
  std::ifstream file(folder / "run/metrics.jsonl");
  std::vector<Json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  ASSERT_EQ(lines.size(), 5u);
  for (int s = 0; s < 4; ++s) {
    EXPECT_EQ(lines[s]["step"], s + 1);
    EXPECT_GT(lines[s]["loss"].get<double>(), 0);
    EXPECT_GT(lines[s]["grad_norm"].get<double>(), 0);
    EXPECT_GE(lines[s]["host_wait_ms"].get<double>(), 0);
    EXPECT_FALSE(lines[s].contains("stall_ms"));  // the CPU has no stream that could stall
  }
  EXPECT_TRUE(lines[4].contains("validation_loss"));
}

TEST(Train, RefusesWhatCannotBeInOneLine) {
  const TempFolder folder;
  folder.write("rhyme.txt", rhyme());
  folder.write("short.txt", "too short");
  const TrainRequest good = small(folder / "rhyme.txt");
  auto said = [&](auto change) {
    TrainRequest r = good;
    change(r);
    Record record;
    const std::atomic<bool> stop{false};
    try {
      train(r, record, stop);
    } catch (const Error& e) {
      return cat(e.what(), " | ", e.hint());
    }
    return std::string("nothing");
  };
  EXPECT_NE(said([](TrainRequest& r) { r.train_bpe = 12; }).find("12"), std::string::npos);
  EXPECT_NE(said([](TrainRequest& r) { r.train_bpe = 300, r.tokenizer = "x"; }).find("only one of them"),
            std::string::npos);
  EXPECT_NE(said([](TrainRequest& r) { r.text = "/nowhere"; }).find("/nowhere"), std::string::npos);
  EXPECT_NE(said([](TrainRequest& r) { r.sizes = {"nan"}; }).find("did you mean 'nano'?"), std::string::npos);
  EXPECT_NE(said([](TrainRequest& r) { r.precision = "bf15"; }).find("did you mean 'bf16'?"),
            std::string::npos);
  EXPECT_NE(said([](TrainRequest& r) { r.recompute = "blocks"; }).find("did you mean 'block'?"),
            std::string::npos);
  EXPECT_NE(said([](TrainRequest& r) { r.recompute = "every:0"; }).find("expected every:k"),
            std::string::npos);
  EXPECT_NE(said([](TrainRequest& r) { r.preset = "basic"; }).find("--preset is 'basic'"), std::string::npos);
  EXPECT_NE(said([](TrainRequest& r) { r.variants = "qvk=split"; }).find("did you mean 'qkv'?"),
            std::string::npos);
  EXPECT_NE(said([](TrainRequest& r) { r.variants = "attention=flush"; }).find("flash"), std::string::npos);
  EXPECT_NE(said([&](TrainRequest& r) { r.text = folder / "short.txt"; }).find("token"), std::string::npos);
  const std::string too_large = said([](TrainRequest& r) { r.sizes = {"leaderboard8b"}, r.batch = 4000; });
  for (const char* part : {" of memory; ", "param ", "grad ", "optim ", "activation ", "--batch"})
    EXPECT_NE(too_large.find(part), std::string::npos) << part << " in: " << too_large;
  EXPECT_NE(said([](TrainRequest& r) { r.variants = "linear=lt"; }).find("runs on cuda, not on cpu"),
            std::string::npos);
  EXPECT_NE(said([](TrainRequest& r) { r.min_lr = 1; }).find("lowest learning rate is 1"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(good.run));  // no half run is left behind
}

TEST(Train, ARefusedRunLeavesTheEarlierOneWhereItIs) {
  const TempFolder folder;
  folder.write("rhyme.txt", rhyme());
  TrainRequest r = small(folder / "rhyme.txt");
  r.steps = 2;
  run(r);
  r.fresh = true;
  r.sizes = {"leaderboard8b"};
  r.batch = 4000;
  Record record;
  const std::atomic<bool> stop{false};
  EXPECT_NE(KILN_ERROR_OF(train(r, record, stop)).find("of memory; "), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(r.run + "/checkpoints/step-00000002/manifest.json"));
  EXPECT_TRUE(std::filesystem::exists(r.run + "/run.json"));
}

}  // namespace
}  // namespace kiln::cli
