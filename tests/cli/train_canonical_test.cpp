// kiln train --canonical: the same bits on any number of ranks, whatever the strategy, in losses, norms and
// weights.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/mapped_file.h"
#include "support/temp_folder.h"
#include "support/train_record.h"
#include "train/run/train.h"

namespace kiln::cli {
namespace {

struct Folder {
  Folder() {
    std::string text;
    for (int i = 0; i < 60; ++i)
      text += cat("a kiln burns ", i % 11, " bricks, and brick ", i % 5, " cracks\n");
    folder.write("bricks.txt", text);
  }
  TrainRequest request(int ranks, const std::string& strategy, const std::string& precision) const {
    TrainRequest r;
    r.run = folder / cat("run-", ranks, "-", strategy, "-", precision);
    r.text = folder / "bricks.txt";
    r.sizes = {"nano"};
    r.steps = 3;
    r.batch = 8;
    r.context = 24;
    r.lr = 5e-3;
    r.clip = 0.5;  // below every norm here: the clip factor's bits reach every weight
    r.threads = 1;
    r.seed = 3;
    r.ranks = ranks;
    r.strategy = strategy;
    r.precision = precision;
    r.sample_tokens = 0;
    r.canonical = true;
    r.chunks = 4;
    return r;
  }
  TempFolder folder;
};

// Weights and moments, by name: what a checkpoint is but for its manifest, which has the date.
std::map<std::string, std::string> tensors_of(const std::string& checkpoint) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(checkpoint)) {
    if (entry.path().extension() == ".safetensors")
      files[entry.path().filename().string()] =
          read_small_file(entry.path().string(), std::size_t{1} << 28, "tensors");
  }
  return files;
}

struct Bits {
  std::vector<double> losses, norms, evaluations;
  std::map<std::string, std::string> tensors;
};

Bits bits_of(const TrainRequest& r) {
  const std::atomic<bool> stop{false};
  TrainRecord record;
  const TrainOutcome outcome = train(r, record, stop);
  Bits bits;
  for (const StepReport& s : record.steps) {
    bits.losses.push_back(s.loss);
    bits.norms.push_back(s.grad_norm);
    EXPECT_LT(s.clip, 1);
    EXPECT_EQ(s.tokens, r.batch * r.micro_steps * r.context);
  }
  for (const Evaluation& e : record.evaluations) bits.evaluations.push_back(e.loss);
  bits.tensors = tensors_of(outcome.checkpoint);
  EXPECT_FALSE(bits.tensors.empty());
  EXPECT_EQ(record.memory.peak_total, record.setup.memory.peak_total);
  return bits;
}

void expect_same(const Bits& a, const Bits& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_EQ(a.evaluations, b.evaluations);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto& [name, bytes] : a.tensors) EXPECT_TRUE(b.tensors.at(name) == bytes) << name;
}

class Canonical : public testing::TestWithParam<const char*> {};

TEST_P(Canonical, AnyNumberOfRanksOfAnyStrategyEndInTheSameBits) {
  const Folder f;
  const Bits one = bits_of(f.request(1, "none", GetParam()));
  ASSERT_EQ(one.losses.size(), 3U);
  for (const char* strategy :
       {"ddp:naive", "ddp:flat", "ddp:overlap", "ddp:bucketed", "zero1:simple", "zero1", "zero2", "fsdp"}) {
    for (const int ranks : {1, 2, 4}) {
      SCOPED_TRACE(cat(strategy, " on ", ranks));
      TrainRequest r = f.request(ranks, strategy, GetParam());
      r.bucket_mb = 0.02;  // several
      expect_same(bits_of(r), one);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Precisions, Canonical, testing::Values("fp32", "bf16", "fp16"));

TEST(TrainCanonical, WithoutItTheBitsAreOthers) {
  const Folder f;
  TrainRequest r = f.request(1, "none", "fp32");
  const Bits one = bits_of(r);
  r.canonical = false;
  r.chunks.reset();
  r.run = f.folder / "plain";
  EXPECT_NE(bits_of(r).norms, one.norms) << "or the test above would say nothing";
}

TEST(TrainCanonical, AccumulationIsPartOfTheBatch) {
  const Folder f;
  const Bits one = bits_of(f.request(1, "none", "fp32"));
  TrainRequest r = f.request(2, "zero2", "fp32");
  r.batch = 2;
  r.micro_steps = 4;
  r.eval_batches *= 4;  // of the smaller batch
  r.threads = 2;
  expect_same(bits_of(r), one);
}

TEST(TrainCanonical, ResumesWithAnotherNumberOfRanks) {
  const Folder f;
  TrainRequest r = f.request(1, "none", "bf16");
  r.steps = 4;
  const Bits whole = bits_of(r);
  TrainRequest part = f.request(4, "fsdp", "bf16");
  part.steps = 4;
  part.save_every = 2;
  part.run = f.folder / "parts";
  std::atomic<bool> stop{false};
  struct Stopper final : TrainView {
    explicit Stopper(std::atomic<bool>& s) : stop(s) {}
    void on_step(const StepReport& report) override { stop = report.step >= 2; }
    std::atomic<bool>& stop;
  } stopper(stop);
  ASSERT_EQ(train(part, stopper, stop).steps, 2);
  part.ranks = 2;
  part.strategy = "ddp:overlap";
  const Bits rest = bits_of(part);
  EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 2, whole.losses.end()));
  EXPECT_EQ(rest.tensors, whole.tensors);
}

TEST(TrainCanonical, WhatCannotBeIsSaidInALine) {
  const Folder f;
  auto said = [&](auto change) {
    TrainRequest r = f.request(2, "ddp:bucketed", "fp32");
    change(r);
    try {
      check_request(r);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(said([](TrainRequest&) {}), "");
  EXPECT_NE(said([](TrainRequest& r) { r.ranks = 3; }).find("4 chunks on 3 ranks: every rank must have"),
            std::string::npos);
  EXPECT_NE(said([](TrainRequest& r) { r.ranks = 8; }).find("4 chunks on 8 ranks"), std::string::npos);
  EXPECT_NE(said([](TrainRequest& r) { r.batch = 6; }).find("the 6 sequences of a step do not divide"),
            std::string::npos);
  EXPECT_NE(said([](TrainRequest& r) { r.batch = 12, r.chunks = 6; }).find("6 chunks on 2 ranks"),
            std::string::npos);
  EXPECT_NE(said([](TrainRequest& r) { r.wire = "bf16"; }).find("rounded to bf16 between ranks"),
            std::string::npos);
  EXPECT_NE(said([](TrainRequest& r) { r.tensor_ranks = 2; }).find("tensor-parallel"), std::string::npos);
  EXPECT_EQ(said([](TrainRequest& r) { r.transport = "nccl"; }), "");  // it then sums in the order of ranks
  EXPECT_NE(said([](TrainRequest& r) { r.ranks = 32, r.batch = 32, r.chunks = 32; }).find("at most 16"),
            std::string::npos);
  EXPECT_EQ(said([](TrainRequest& r) { r.canonical = false; }),
            "--chunks says how --canonical cuts a step's batch");
  // Chosen by itself where nothing is said.
  EXPECT_EQ(said([](TrainRequest& r) { r.chunks.reset(); }), "");
  EXPECT_NE(said([](TrainRequest& r) { r.chunks.reset(), r.batch = 9; }).find("1 chunks on 2 ranks"),
            std::string::npos);
}

}  // namespace
}  // namespace kiln::cli
