// kiln train --tp: the same run as on one rank, from nothing, from a folder with weights or from a checkpoint
// of any layout; and what cannot be is reported in a line before anything is read.
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/temp_folder.h"
#include "support/train_record.h"
#include "train/run/train.h"

namespace kiln::cli {
namespace {

struct Folder {
  Folder() {
    std::string text;
    for (int i = 0; i < 60; ++i) text += cat("the hen sat on egg ", i % 7, " and the owl sat on the bowl\n");
    folder.write("rhyme.txt", text);
  }
  TrainRequest request(int ranks, int tensor, const std::string& strategy) const {
    TrainRequest r;
    r.run = folder / cat("run-", ranks, "-", tensor, "-", strategy);
    r.text = folder / "rhyme.txt";
    r.steps = 4;
    r.batch = 6;
    r.context = 24;
    r.lr = 5e-3;
    r.threads = 1;
    r.seed = 3;
    r.ranks = ranks;
    r.tensor_ranks = tensor;
    r.strategy = strategy;
    r.sample_tokens = 4;
    r.sample_every = 2;
    return r;
  }
  TempFolder folder;
};

TEST(TrainTensorParallel, PartsOfAModelTrainAsTheWholeDoes) {
  const Folder f;
  const std::atomic<bool> stop{false};
  TrainRecord one;
  train(f.request(1, 1, "none"), one, stop);
  for (const auto& [ranks, tensor, strategy] :
       {std::tuple(2, 2, "none"), {4, 2, "ddp:bucketed"}, {4, 2, "fsdp"}, {4, 4, "none"}}) {
    SCOPED_TRACE(cat(ranks, " ranks, ", tensor, " a model, ", strategy));
    TrainRecord record;
    const TrainOutcome outcome = train(f.request(ranks, tensor, strategy), record, stop);
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
    EXPECT_EQ(record.memory.peak_total, record.setup.memory.peak_total);
    EXPECT_EQ(record.setup.parameters, one.setup.parameters);
    EXPECT_TRUE(record.warnings.empty());
    EXPECT_FALSE(outcome.checkpoint.empty());
    EXPECT_TRUE(outcome.sample.empty());  // no rank has the model
  }
}

TEST(TrainTensorParallel, WhatCannotBeIsSaidInALine) {
  const Folder f;
  auto said = [&](auto change) {
    TrainRequest r = f.request(4, 2, "ddp:bucketed");
    change(r);
    try {
      check_request(r);
    } catch (const Error& e) {
      return cat(e.what(), " / ", e.hint());
    }
    return std::string();
  };
  EXPECT_EQ(said([](TrainRequest&) {}), "");
  EXPECT_EQ(
      said([](TrainRequest& r) { r.tensor_ranks = 3; }),
      "--ranks is 4 and --tp is 3: the ranks do not divide into models of 3 / --ranks is data-parallel x "
      "tensor-parallel ranks: --ranks 6, say");
  EXPECT_EQ(said([](TrainRequest& r) { r.tensor_ranks = 0; }),
            "--tp is '0'; expected a whole number from 1 to 65536 / ");
  EXPECT_EQ(said([](TrainRequest& r) { r.batch = 5; }),
            "--batch is 5 and --ranks is 4, 2 models of 2 ranks: the batch does not divide among them / "
            "--batch 6 does");
  EXPECT_EQ(said([](TrainRequest& r) { r.strategy = "none"; }),
            "--strategy is 'none', and there are 2 ranks: each would train a model of its own / ddp:bucketed "
            "is the usual one");
  EXPECT_EQ(said([](TrainRequest& r) { r.ranks = r.tensor_ranks = 8, r.batch = 8, r.strategy = "none"; }),
            "4 heads do not divide among 8 tensor-parallel ranks / choose a number of ranks that "
            "divides heads, key/value heads and d_ff");
}

// One run, each part of it in another layout: the losses of a run in one go.
TEST(TrainTensorParallel, ARunResumesInAnotherLayout) {
  const Folder f;
  const std::atomic<bool> stop{false};
  auto level = [&](int ranks, int tensor, const std::string& strategy, const std::string& run) {
    TrainRequest r = f.request(ranks, tensor, strategy);
    r.run = f.folder / run;
    r.warmup = 1;
    r.min_lr = r.lr;  // a schedule that does not know how long the run is
    return r;
  };
  TrainRequest whole = level(1, 1, "none", "whole");
  whole.steps = 12;
  TrainRecord wanted;
  train(whole, wanted, stop);
  int64_t done = 0;
  for (const auto& [ranks, tensor, strategy] : {std::tuple(1, 1, "none"),
                                                {2, 2, "none"},
                                                {4, 2, "fsdp"},
                                                {1, 1, "none"},
                                                {4, 2, "ddp:bucketed"},
                                                {3, 1, "zero1"}}) {
    SCOPED_TRACE(cat(ranks, " ranks, ", tensor, " a model, ", strategy));
    TrainRequest r = level(ranks, tensor, strategy, "parts");
    r.steps = done + 2;
    TrainRecord record;
    EXPECT_EQ(train(r, record, stop).steps, done + 2);
    EXPECT_EQ(record.setup.first_step, done);
    ASSERT_EQ(record.steps.size(), 2u);
    for (const StepReport& s : record.steps) {
      EXPECT_NEAR(s.loss, wanted.steps.at(static_cast<std::size_t>(s.step) - 1).loss, 2e-4) << s.step;
    }
    done += 2;
  }
}

TEST(TrainTensorParallel, AFolderWithWeightsIsReadInParts) {
  const Folder f;
  const std::atomic<bool> stop{false};
  TrainRecord ignored;
  const std::string folder = train(f.request(1, 1, "none"), ignored, stop).checkpoint;
  std::vector<TrainRecord> records(4);
  auto from_folder = [&](int ranks, int tensor, const std::string& strategy, TrainRecord& record) {
    TrainRequest r = f.request(ranks, tensor, strategy);
    r.run += "-from-folder";
    r.model = folder;
    r.steps = 2;
    train(r, record, stop);
  };
  from_folder(1, 1, "none", records[0]);
  from_folder(2, 2, "none", records[1]);
  from_folder(4, 4, "none", records[2]);
  from_folder(4, 2, "fsdp", records[3]);
  EXPECT_LT(records[0].steps.at(0).loss, 4.5);  // of a model that has learned something
  for (const TrainRecord& record : records) {
    EXPECT_TRUE(record.warnings.empty());
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_NEAR(record.steps.at(i).loss, records[0].steps.at(i).loss, 1e-4);
  }
}

}  // namespace
}  // namespace kiln::cli
