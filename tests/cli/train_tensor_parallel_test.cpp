// kiln train --tp: the same run as on one rank, and what cannot be said in a line before anything is read.
#include <gtest/gtest.h>

#include "base/error.h"
#include "kiln/train.h"
#include "support/temp_folder.h"
#include "support/train_record.h"

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
    // Said, not hidden: no rank has the model.
    ASSERT_EQ(record.warnings.size(), 1u);
    EXPECT_EQ(record.warnings[0], cat("nothing is saved: with --tp ", tensor, " every rank has a part"));
    EXPECT_TRUE(outcome.checkpoint.empty());
    EXPECT_TRUE(outcome.sample.empty());
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
  EXPECT_EQ(said([](TrainRequest& r) { r.tensor_ranks = 0; }), "--tp is 0; expected 1 or more / ");
  EXPECT_EQ(said([](TrainRequest& r) { r.batch = 5; }),
            "--batch is 5 and --ranks is 4, 2 models of 2 ranks: the batch does not divide among them / "
            "--batch 6 does");
  EXPECT_EQ(said([](TrainRequest& r) { r.strategy = "none"; }),
            "--strategy is 'none', and there are 2 ranks: each would train a model of its own / ddp:bucketed "
            "is the usual one");
  EXPECT_EQ(said([](TrainRequest& r) { r.ranks = r.tensor_ranks = 8, r.batch = 8, r.strategy = "none"; }),
            "4 heads do not divide among 8 tensor-parallel ranks / each takes as many: choose ranks that "
            "divide heads, key/value heads and d_ff");
}

TEST(TrainTensorParallel, ARunOfWholeModelsIsNotTakenUpInParts) {
  const Folder f;
  const std::atomic<bool> stop{false};
  TrainRequest r = f.request(1, 1, "none");
  r.steps = 1;
  TrainRecord record;
  train(r, record, stop);
  r.steps = 2;
  r.ranks = r.tensor_ranks = 2;
  try {
    train(r, record, stop);
    ADD_FAILURE() << "it went on";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("--tp 2 cannot go on from"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace kiln::cli
