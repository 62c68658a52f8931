// A run that was stopped, or killed, and resumed ends with the same bytes as one that never was.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "base/json.h"
#include "support/json_file.h"
#include "support/temp_folder.h"
#include "train/run/train.h"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

struct Record final : TrainView {
  TrainSetup setup;
  std::vector<double> losses;
  std::vector<std::string> warnings;
  std::vector<int64_t> saved;
  int64_t stop_after = -1;  // steps
  bool die = false;         // as if killed: by an unexpected error
  std::atomic<bool> stop{false};
  std::string in_the_way;  // a file that is there once training begins
  void on_setup(const TrainRequest&, const TrainSetup& s) override {
    setup = s;
    if (!in_the_way.empty()) std::ofstream(in_the_way) << "x";
  }
  void on_step(const StepReport& r) override {
    losses.push_back(r.loss);
    if (r.step != stop_after) return;
    if (die) throw Error("killed");
    stop = true;
  }
  void on_warning(const std::string& line) override { warnings.push_back(line); }
  void on_saved(int64_t step, const std::string&) override { saved.push_back(step); }
};

TrainRequest request(const TempFolder& folder, const std::string& run) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "the cat sat on the mat and the dog sat on the log\n";
  folder.write("rhyme.txt", text);
  TrainRequest r;
  r.run = folder / run;
  r.text = folder / "rhyme.txt";
  r.steps = 12;
  r.batch = 2;
  r.context = 16;
  r.threads = 1;
  r.save_every = 5;
  return r;
}

// Weights, moments, and state up to the seconds it took and the tokens that were timed.
std::string content(const TempFolder& folder, const std::string& run) {
  const std::string at = run + "/checkpoints/step-00000012/";
  const std::string state = folder.read(at + "state.json");
  return folder.read(at + "model.safetensors") + folder.read(at + "optimizer.safetensors") +
         folder.read(at + "config.json") + folder.read(at + "tokenizer.json") +
         state.substr(0, state.find("\"seconds\""));
}

struct Case {
  std::string precision;
  int micro_steps;
  std::string optimizer = "adamw";
};

class Resume : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Runs, Resume,
                         testing::Values(Case{"fp32", 1}, Case{"fp32", 4}, Case{"bf16", 1}, Case{"bf16", 4},
                                         Case{"autocast", 1}, Case{"pure-bf16", 2}, Case{"fp16", 1},
                                         Case{"fp32", 2, "sgd"}, Case{"bf16", 1, "sgd"}));

TEST_P(Resume, StoppedOrKilledItEndsWithTheSameBytes) {
  const TempFolder folder;
  const auto with = [&](const std::string& run) {
    TrainRequest r = request(folder, run);
    r.precision = GetParam().precision;
    r.micro_steps = GetParam().micro_steps;
    r.optimizer.name = GetParam().optimizer;
    return r;
  };
  Record straight;
  EXPECT_EQ(train(with("straight"), straight, straight.stop).steps, 12);
  EXPECT_EQ(straight.saved, (std::vector<int64_t>{5, 10, 12}));

  Record before, after;  // stopped: saves where it is
  before.stop_after = 6;
  const TrainOutcome half = train(with("stopped"), before, before.stop);
  EXPECT_GE(half.steps, 6);
  EXPECT_LT(half.steps, 9);
  const TrainOutcome whole = train(with("stopped"), after, after.stop);
  EXPECT_EQ(after.setup.first_step, half.steps);
  EXPECT_EQ(whole.steps, 12);
  EXPECT_EQ(whole.steps_now, 12 - half.steps);
  EXPECT_EQ(content(folder, "stopped"), content(folder, "straight"));
  std::vector<double> losses = before.losses;
  losses.insert(losses.end(), after.losses.begin(), after.losses.end());
  EXPECT_EQ(losses, straight.losses);
  EXPECT_EQ(whole.totals.first_loss, straight.losses.front());

  Record killed, again;  // killed: goes back to what was saved last
  killed.stop_after = 8;
  killed.die = true;
  const std::string said = KILN_ERROR_OF(train(with("killed"), killed, killed.stop));
  EXPECT_NE(said.find("the last good checkpoint is " + (folder / "killed/checkpoints/step-00000005")),
            std::string::npos)
      << said;
  train(with("killed"), again, again.stop);
  EXPECT_EQ(again.setup.first_step, 5);
  EXPECT_EQ(content(folder, "killed"), content(folder, "straight"));
}

// The sender of the signal may be about to kill it: nothing comes between the step and the save.
TEST(TrainResume, ASignalWaitsForTheSaveAndNothingElse) {
  struct Order final : TrainView {
    std::string events;
    std::atomic<bool> stop{false};
    void on_step(const StepReport& r) override { stop = stop || r.step == 3; }
    void on_evaluation(int64_t, const Evaluation&) override { events += "e"; }
    void on_saved(int64_t, const std::string&) override { events += "s"; }
  };
  const TempFolder folder;
  TrainRequest r = request(folder, "run");
  r.save_every = 0;
  Order stopped;
  const TrainOutcome outcome = train(r, stopped, stopped.stop);
  EXPECT_LT(outcome.steps, 12);
  EXPECT_EQ(stopped.events, "s");
  EXPECT_EQ(outcome.sample, "");
  r.eval_every = 6;
  r.save_every = 6;
  r.run = folder / "other";
  struct Whole final : TrainView {
    std::string events;
    void on_evaluation(int64_t, const Evaluation&) override { events += "e"; }
    void on_saved(int64_t, const std::string&) override { events += "s"; }
  } all;
  const std::atomic<bool> never{false};
  train(r, all, never);
  EXPECT_EQ(all.events, "sese");
}

TEST(TrainResume, ATextOfTheSameLengthIsAnotherText) {
  const TempFolder folder;
  TrainRequest r = request(folder, "run");
  Record first, second;
  train(r, first, first.stop);
  std::string text = folder.read("rhyme.txt");
  std::replace(text.begin(), text.end(), 'c', 'h');
  folder.write("rhyme.txt", text);
  r.steps = 14;
  EXPECT_NE(KILN_ERROR_OF(train(r, second, second.stop)).find("the checksum of the tokens was"),
            std::string::npos);
}

TEST(TrainResume, ABrokenRunRecordIsNoReasonToStop) {
  const TempFolder folder;
  TrainRequest r = request(folder, "run");
  Record first, second;
  train(r, first, first.stop);
  folder.write("run/run.json", "{ torn");
  r.steps = 14;
  EXPECT_EQ(train(r, second, second.stop).steps, 14);
  ASSERT_EQ(second.warnings.size(), 1u);
  EXPECT_EQ(second.warnings[0].find("cannot tell which options changed: "), 0u);
}

// A model from a folder, with more tokens than its text has, as many are padded.
TEST(TrainResume, AModelFromAFolderKeepsItsShapeAndItsTokenizer) {
  const TempFolder folder;
  TrainRequest r = request(folder, "run");
  Record first, second, third;
  const TrainOutcome source = train(r, first, first.stop);
  TrainRequest from = request(folder, "from");
  from.model = source.checkpoint;
  EXPECT_EQ(train(from, second, second.stop).steps, 12);
  EXPECT_EQ(second.setup.model.vocab, 257);
  EXPECT_LT(second.losses.front(), first.losses.front() - 0.1);  // it begins where the other ended
  from.kv_heads = 1;
  EXPECT_NE(KILN_ERROR_OF(check_request(from), 0).find("has weights of another shape"), std::string::npos);

  std::ifstream config_file(source.checkpoint + "/config.json");
  Json config = json_of(config_file);
  config["vocab_size"] = 300;
  TrainRequest padded = request(folder, "padded");
  padded.model = folder.write("padded.json", config.dump());
  EXPECT_EQ(train(padded, third, third.stop).steps, 12);
  EXPECT_EQ(third.setup.model.vocab, 300);
  EXPECT_TRUE(third.warnings.empty());  // sampling never draws what no text stands for
}

TEST(TrainResume, AFinishedRunHasNothingLeftToDo) {
  const TempFolder folder;
  const TrainRequest r = request(folder, "run");
  Record first, second;
  const TrainOutcome before = train(r, first, first.stop), after = train(r, second, second.stop);
  EXPECT_EQ(after.steps, 12);
  EXPECT_EQ(after.steps_now, 0);
  EXPECT_EQ(after.checkpoint, before.checkpoint);
  EXPECT_EQ(after.totals.last_loss, before.totals.last_loss);
  EXPECT_TRUE(second.losses.empty());
  TrainRequest more = r;
  more.steps = 14;
  Record third;
  EXPECT_EQ(train(more, third, third.stop).steps_now, 2);
  ASSERT_EQ(third.warnings.size(), 1u);
  EXPECT_EQ(third.warnings[0], "resuming with other options: steps was 12, is 14");
}

TEST(TrainResume, FreshMovesTheEarlierRunAside) {
  const TempFolder folder;
  TrainRequest r = request(folder, "run");
  Record first, second;
  train(r, first, first.stop);
  r.fresh = true;
  EXPECT_EQ(train(r, second, second.stop).steps_now, 12);
  EXPECT_EQ(second.losses, first.losses);
  EXPECT_TRUE(fs::exists(folder / "run/earlier-2/checkpoints/step-00000012/manifest.json"));
}

TEST(TrainResume, AnotherModelTokenizerOrTextIsRefusedAndTheRunStays) {
  const TempFolder folder;
  const TrainRequest good = request(folder, "run");
  Record first;
  train(good, first, first.stop);
  const std::string before = content(folder, "run");
  const auto said = [&](auto change) {
    TrainRequest r = good;
    r.steps = 20;
    change(r);
    Record record;
    return KILN_ERROR_OF(train(r, record, record.stop));
  };
  EXPECT_NE(said([](TrainRequest& r) { r.sizes = {"tiny"}; }).find("this run has"), std::string::npos);
  EXPECT_NE(said([](TrainRequest& r) { r.precision = "bf16"; }).find("the precision fp32; this run has bf16"),
            std::string::npos);
  EXPECT_NE(
      said([](TrainRequest& r) { r.optimizer.name = "sgd"; }).find("the optimizer adamw; this run has sgd"),
      std::string::npos);
  EXPECT_NE(said([](TrainRequest& r) { r.tied = true; }).find("tied embeddings"), std::string::npos);
  EXPECT_NE(said([](TrainRequest& r) { r.context = 17; }).find("17"), std::string::npos);
  EXPECT_NE(said([](TrainRequest& r) { r.held_out = 0.4; }).find("token"), std::string::npos);
  EXPECT_EQ(content(folder, "run"), before);
}

TEST(TrainResume, ASaveThatFailsIsLoudAndAtTheEndAnError) {
  const TempFolder folder;
  const TrainRequest r = request(folder, "run");
  Record record;
  record.in_the_way = folder / "run/checkpoints";
  const std::string said = KILN_ERROR_OF(train(r, record, record.stop));
  EXPECT_NE(said.find("the last save failed: cannot write"), std::string::npos) << said;
  EXPECT_EQ(record.losses.size(), 12u);  // it continued
  ASSERT_EQ(record.warnings.size(), 3u);
  EXPECT_EQ(record.warnings[0].find("STEP 5 WAS NOT SAVED: "), 0u);
  TrainRequest strict = r;
  strict.stop_on_save_error = true;
  fs::remove(folder / "run/checkpoints");
  Record stopped;
  stopped.in_the_way = folder / "run/checkpoints";
  EXPECT_NE(KILN_ERROR_OF(train(strict, stopped, stopped.stop)).find("cannot write"), std::string::npos);
  EXPECT_EQ(stopped.losses.size(), 5u);
}

}  // namespace
}  // namespace kiln::cli
