// kiln train on several ranks of one process: the same run as on one, split; and what cannot be is reported
// in a line before anything is read.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "support/temp_folder.h"
#include "support/train_record.h"
#include "train/run/train.h"

namespace kiln::cli {
namespace {

std::string rhyme() {
  std::string text;
  for (int i = 0; i < 60; ++i) text += cat("the cat sat on mat ", i % 7, " and the dog sat on the log\n");
  return text;
}

struct Folder {
  Folder() { folder.write("rhyme.txt", rhyme()); }
  TrainRequest request(int ranks, const std::string& strategy) const {
    TrainRequest r;
    r.run = folder / cat("run-", ranks, "-", strategy);
    r.text = folder / "rhyme.txt";
    r.steps = 4;
    r.batch = 6;
    r.context = 24;
    r.lr = 5e-3;
    r.threads = 1;
    r.seed = 3;
    r.ranks = ranks;
    r.strategy = strategy;
    r.sample_tokens = 4;
    return r;
  }
  TempFolder folder;
};

TEST(TrainRanks, SeveralRanksTrainAsOneDoes) {
  const Folder f;
  const std::atomic<bool> stop{false};
  TrainRecord one;
  const TrainOutcome alone = train(f.request(1, "none"), one, stop);
  for (const char* strategy : {"ddp:bucketed", "ddp:naive", "zero1", "zero2", "zero1:simple", "fsdp"}) {
    for (const int ranks : {2, 3}) {
      SCOPED_TRACE(cat(strategy, " on ", ranks));
      TrainRecord record;
      const TrainOutcome outcome = train(f.request(ranks, strategy), record, stop);
      EXPECT_EQ(outcome.steps, 4);
      ASSERT_EQ(record.steps.size(), one.steps.size());
      for (std::size_t i = 0; i < one.steps.size(); ++i) {
        EXPECT_NEAR(record.steps[i].loss, one.steps[i].loss, 1e-4);
        EXPECT_NEAR(record.steps[i].grad_norm / one.steps[i].grad_norm, 1, 1e-3);
        EXPECT_EQ(record.steps[i].tokens, one.steps[i].tokens);
      }
      ASSERT_EQ(record.evaluations.size(), 1u);
      EXPECT_EQ(record.evaluations[0].tokens, one.evaluations[0].tokens);
      EXPECT_NEAR(record.evaluations[0].loss, one.evaluations[0].loss, 1e-3);
      // What was said before the first step is what a rank took.
      EXPECT_EQ(record.memory.peak_total, record.setup.memory.peak_total);
    }
  }
  EXPECT_FALSE(alone.checkpoint.empty());
}

TEST(TrainRanks, ARunResumesWithAnotherNumberOfRanks) {
  const Folder f;
  const std::atomic<bool> stop{false};
  TrainRequest r = f.request(1, "none");
  TrainRecord whole;
  r.steps = 6;
  r.warmup = 1;
  r.run = f.folder / "whole";
  train(r, whole, stop);
  r.run = f.folder / "parts";
  for (const auto& [steps, ranks, strategy] :
       {std::tuple(int64_t{2}, 2, "ddp:flat"), {int64_t{4}, 3, "ddp:overlap"}, {int64_t{6}, 1, "none"}}) {
    TrainRequest part = r;
    part.steps = steps;
    part.ranks = ranks;
    part.strategy = strategy;
    part.min_lr = part.lr;  // a schedule that does not know how long the run is
    TrainRecord record;
    EXPECT_EQ(train(part, record, stop).steps, steps);
    EXPECT_EQ(record.setup.first_step, steps - 2);
  }
  TrainRequest level = r;
  level.run = f.folder / "level";
  level.min_lr = level.lr;
  TrainRecord reference, last;
  const double wanted = train(level, reference, stop).totals.last_loss;
  TrainRequest again = level;
  again.run = f.folder / "parts";
  EXPECT_NEAR(train(again, last, stop).totals.last_loss, wanted, 1e-4);
}

TEST(TrainRanks, WhatCannotBeIsSaidInALine) {
  const Folder f;
  auto said = [&](auto change) {
    TrainRequest r = f.request(2, "ddp:bucketed");
    change(r);
    try {
      check_request(r);
    } catch (const Error& e) {
      return cat(e.what(), " / ", e.hint());
    }
    return std::string();
  };
  EXPECT_EQ(said([](TrainRequest&) {}), "");
  EXPECT_EQ(said([](TrainRequest& r) { r.batch = 7; }),
            "--batch is 7 and --ranks is 2: the batch does not divide among them / --batch 8 does");
  EXPECT_EQ(said([](TrainRequest& r) { r.ranks = 8; }),
            "--batch is 6 and --ranks is 8: some ranks would have no sequence / --batch 8 does");
  EXPECT_EQ(said([](TrainRequest& r) { r.ranks = 0; }),
            "--ranks is '0'; expected a whole number from 1 to 65536 / ");
  EXPECT_EQ(said([](TrainRequest& r) { r.strategy = "none"; }),
            "--strategy is 'none', and there are 2 ranks: each would train a model of its own / ddp:bucketed "
            "is the usual one");
  EXPECT_NE(said([](TrainRequest& r) { r.strategy = "ddp"; }).find("expected one of: none, ddp:naive"),
            std::string::npos);
  EXPECT_NE(said([](TrainRequest& r) { r.transport = "smoke"; }).find("--transport is 'smoke'"),
            std::string::npos);
  EXPECT_EQ(said([](TrainRequest& r) { r.wire = "int8"; }),
            "--grad-comm-dtype is 'int8'; expected one of: fp32, bf16 / ");
  EXPECT_EQ(said([](TrainRequest& r) { r.bucket_mb = -1; }),
            "--bucket-mb is '-1'; expected a number of 0 or more / ");
}

// The depth changes when weights travel, not what is computed.
TEST(TrainRanks, PrefetchMayBeChosenFromTheLink) {
  const Folder f;
  const std::atomic<bool> stop{false};
  TrainRecord fixed, chosen;
  train(f.request(2, "fsdp"), fixed, stop);
  TrainRequest r = f.request(2, "fsdp");
  r.run = f.folder / "auto";
  r.results = f.folder / "elsewhere";
  r.prefetch_auto = true;
  r.link = "latency=20us,bandwidth=1GB/s";
  train(r, chosen, stop);
  ASSERT_EQ(chosen.steps.size(), fixed.steps.size());
  for (std::size_t i = 0; i < fixed.steps.size(); ++i) EXPECT_EQ(chosen.steps[i].loss, fixed.steps[i].loss);
  const auto note = std::find_if(chosen.notes.begin(), chosen.notes.end(),
                                 [](const std::string& line) { return line.starts_with("fsdp prefetch "); });
  ASSERT_NE(note, chosen.notes.end());
  EXPECT_NE(note->find("by the modelled link and "), std::string::npos) << *note;
  EXPECT_NE(note->find(" ms exposed of "), std::string::npos) << *note;
  r.run = f.folder / "guess";
  r.link.clear();
  try {
    train(r, chosen, stop);
    FAIL() << "auto without a link";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("--fsdp-prefetch is 'auto', and nothing is known of 2 ranks"),
              std::string::npos)
        << e.what();
  }
}

TEST(TrainRanks, AllRanksStopAfterTheSameStep) {
  const Folder f;
  std::atomic<bool> stop{false};
  struct Stopper final : TrainView {
    explicit Stopper(std::atomic<bool>& s) : stop(s) {}
    void on_step(const StepReport& r) override {
      if (r.step == 2) stop = true;
    }
    std::atomic<bool>& stop;
  } stopper(stop);
  TrainRequest r = f.request(3, "ddp:overlap");
  r.steps = 50;
  const TrainOutcome outcome = train(r, stopper, stop);
  EXPECT_GE(outcome.steps, 2);
  EXPECT_LT(outcome.steps, 6);
  EXPECT_FALSE(outcome.checkpoint.empty());
}

}  // namespace
}  // namespace kiln::cli
