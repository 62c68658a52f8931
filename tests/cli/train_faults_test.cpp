// Runs with injected faults: what each must end in, on several ranks that are threads of this process.
// Faults that end a process are in tests/faults/kill_points.py.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "support/temp_folder.h"
#include "support/train_record.h"
#include "train/run/train.h"

namespace kiln::cli {
namespace {

struct Faults : testing::Test {
  TrainRequest request(const std::string& name, const std::vector<std::string>& inject, int ranks = 2,
                       const std::string& strategy = "ddp:bucketed") const {
    std::string text;
    for (int i = 0; i < 60; ++i) text += cat("the cat sat on mat ", i % 7, " and the dog sat on the log\n");
    folder.write("rhyme.txt", text);
    TrainRequest r;
    r.run = folder / name;
    r.text = folder / "rhyme.txt";
    r.sizes = {"nano"};
    r.steps = 8;
    r.batch = 2 * ranks;
    r.context = 16;
    r.threads = 1;
    r.seed = 3;
    r.ranks = ranks;
    r.strategy = ranks == 1 ? "none" : strategy;
    r.sample_tokens = 0;
    r.save_every = 4;
    r.held_out = 0;
    r.inject = inject;
    return r;
  }
  // What it ended in: the error, or nothing.
  std::string run(const TrainRequest& r) {
    record = {};
    outcome = {};
    try {
      outcome = train(r, record, stop);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
  bool warned(const std::string& words) const {
    return std::any_of(record.warnings.begin(), record.warnings.end(),
                       [&](const std::string& line) { return line.find(words) != std::string::npos; });
  }
  std::string weights(const TrainRequest& r, const char* step = "step-00000008") const {
    const std::filesystem::path at = std::filesystem::path(r.run) / "checkpoints" / step;
    std::string all;
    for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
      std::ifstream file(at / name, std::ios::binary);
      all.append(std::istreambuf_iterator<char>(file), {});
    }
    return all;
  }
  std::string said() const { return testing::PrintToString(record.warnings); }

  TempFolder folder;
  std::atomic<bool> stop{false};
  TrainRecord record;
  TrainOutcome outcome;
};

constexpr const char* kSites[] = {"activation", "gradient", "bucket", "weight", "loss"};

// Of a weight the last element: the rank's own under ZeRO, where others' are overwritten after each update.
std::string nan_at(const std::string& site) {
  return cat("nan:rank=1,step=6,site=", site, site == "weight" ? ",element=63" : "");
}

// What is named at each site, whichever rank is asked.
const char* culprit_of(const std::string& site) {
  if (site == "activation") return " forward in layers.0";
  if (site == "gradient") return " backward in layers.";
  if (site == "bucket") return "grad";
  if (site == "weight") return "the weight model.layers.0.";
  return "[linear_cross_entropy]";
}

TEST_F(Faults, NanAtFiveSitesStopsInTheSameStepAndIsNamed) {
  for (const char* strategy : {"ddp:bucketed", "zero1", "fsdp"}) {
    for (const std::string site : kSites) {
      SCOPED_TRACE(cat(strategy, " ", site));
      const TrainRequest r = request(cat("stop-", strategy, site), {nan_at(site)}, 2, strategy);
      const std::string error = run(r);
      EXPECT_EQ(error.find("step 6 is not finite: "), 0u) << error;
      EXPECT_NE(error.find(culprit_of(site)), std::string::npos) << error;
      EXPECT_EQ(record.steps.size(), 5u);
      EXPECT_TRUE(warned("FAULT INJECTION IS ON")) << said();
      EXPECT_TRUE(std::filesystem::exists(r.run + "/checkpoints/step-00000004/manifest.json"));
      EXPECT_FALSE(std::filesystem::exists(r.run + "/checkpoints/step-00000008"));
    }
  }
}

TEST_F(Faults, NanIsSkippedBeforeTheUpdateOnAllRanks) {
  for (const char* strategy : {"ddp:flat", "zero2", "fsdp"}) {
    std::string expected;  // the step is left out whatever was not finite in it
    for (const std::string site : kSites) {
      SCOPED_TRACE(cat(strategy, " ", site));
      TrainRequest r = request(cat("skip-", strategy, site), {nan_at(site)}, 2, strategy);
      r.on_non_finite = OnNonFinite::skip;
      r.max_skips = 1;
      r.check_replicas = site == "weight" ? 0 : 1;
      const std::string error = run(r);
      EXPECT_TRUE(warned("STEP 6 WAS SKIPPED")) << said();
      EXPECT_TRUE(warned(culprit_of(site))) << said();
      if (site == "weight") {  // it is not finite in the next step either
        EXPECT_EQ(error.find("step 7 is not finite: "), 0u) << error;
        continue;
      }
      EXPECT_EQ(error, "");
      EXPECT_EQ(outcome.skipped, 1);
      EXPECT_EQ(outcome.steps, 8);
      EXPECT_FALSE(warned("did not happen")) << said();
      if (expected.empty()) expected = weights(r);
      EXPECT_EQ(weights(r), expected);
    }
  }
}

TEST_F(Faults, ARunThatSkippedAStepResumes) {
  TrainRequest r = request("resumed", {"nan:step=4,site=loss"}, 1);
  r.on_non_finite = OnNonFinite::skip;
  r.steps = 4;  // saved right after the step that was skipped
  EXPECT_EQ(run(r), "");
  r.inject.clear();
  r.steps = 8;
  EXPECT_EQ(run(r), "");
  EXPECT_EQ(outcome.steps_now, 4);
  EXPECT_EQ(record.setup.earlier_losses.size(), 3u);
}

TEST_F(Faults, ADumpHasTheBatchesAndTheFirstTensor) {
  for (const std::string site : kSites) {
    SCOPED_TRACE(site);
    TrainRequest r = request(cat("dump-", site), {nan_at(site)});
    r.on_non_finite = OnNonFinite::dump;
    EXPECT_EQ(run(r).find("step 6 is not finite: "), 0u);
    const std::string at = r.run + "/non-finite/step-00000006/rank-";
    for (const int rank : {0, 1}) {
      std::ifstream json(cat(at, rank, ".json"));
      ASSERT_TRUE(json) << rank;
      const Json page = Json::parse(std::string(std::istreambuf_iterator<char>(json), {}));
      EXPECT_EQ(page.at("step"), 6);
      EXPECT_NE(page.at("what").text().find(culprit_of(site)), std::string::npos) << page.dump();
      const SafetensorsFile tensors(cat(at, rank, ".safetensors"));
      EXPECT_TRUE(tensors.header().find("tokens.0").has_value());
      EXPECT_EQ(tensors.header().find("first_not_finite").has_value(), rank == 1);
    }
  }
}

TEST_F(Faults, AFlippedBitIsFoundByTheNextComparisonWithRankAndTensor) {
  for (const char* strategy : {"ddp:bucketed", "ddp:naive"}) {
    SCOPED_TRACE(strategy);
    TrainRequest r =
        request(cat("flip-", strategy), {"flip:rank=2,step=3,tensor=layers.1.,bit=3"}, 3, strategy);
    r.check_replicas = 5;
    const std::string error = run(r);
    // A rank with other weights has other gradients in step 3; all save those of the flipped one agree.
    EXPECT_EQ(error.find("after step 4 rank 2 holds another model.layers.1."), 0u) << error;
    EXPECT_FALSE(std::filesystem::exists(r.run + "/checkpoints/step-00000004")) << "saved what was damaged";
    r.inject.clear();
    r.run = folder / cat("calm-", strategy);
    EXPECT_EQ(run(r), "");
  }
}

TEST_F(Faults, ASlowRankIsNamedWithin20Steps) {
  TrainRequest r = request("slow", {"slow:rank=1,factor=60"});
  r.steps = 20;
  r.save_every = 0;
  EXPECT_EQ(run(r), "");
  EXPECT_TRUE(warned("rank 1 is slow: after step ")) << said();
  EXPECT_TRUE(warned("compute/comm/wait a step over 5 steps: rank 0 ")) << said();
}

TEST_F(Faults, AFullDiskAndAFailedSyncCostASaveAndNotTheRun) {
  for (const char* fault : {"enospc", "eio"}) {
    for (const int call : {1, 2, 3}) {
      SCOPED_TRACE(cat(fault, call));
      TrainRequest r = request(cat(fault, call), {cat(fault, ":step=4,call=", call)}, 1);
      EXPECT_EQ(run(r), "");
      EXPECT_TRUE(warned("STEP 4 WAS NOT SAVED: ")) << said();
      EXPECT_TRUE(warned(fault == std::string("eio") ? "Input/output error" : "No space left on device"))
          << said();
      EXPECT_FALSE(std::filesystem::exists(r.run + "/checkpoints/step-00000004"));
      EXPECT_TRUE(std::filesystem::exists(r.run + "/checkpoints/step-00000008/manifest.json"));
    }
  }
  TrainRequest last = request("last", {"enospc:step=8"}, 1);
  EXPECT_EQ(run(last).find("the last save failed: cannot write "), 0u);
}

TEST_F(Faults, WhatDidNotHappenIsSaid) {
  EXPECT_EQ(run(request("none", {"flip:rank=1,step=3,tensor=no.such.weight"})), "");
  EXPECT_TRUE(warned("injected faults that did not happen: flip:rank=1,step=3,tensor=no.such.weight"))
      << said();
  EXPECT_EQ(run(request("calm", {})), "");
  EXPECT_FALSE(warned("FAULT")) << said();
}

TEST_F(Faults, TheyAreInTheRunsRecordAndNotInItsConfig) {
  const TrainRequest r = request("record", {"slow:step=2,until=2", "enospc:step=4"}, 1);
  EXPECT_EQ(run(r), "");
  std::ifstream record_file(r.run + "/run.json"), config(r.run + "/run_config.json");
  const Json page = Json::parse(std::string(std::istreambuf_iterator<char>(record_file), {}));
  EXPECT_EQ(page.at("inject").dump(), "[\"slow:step=2,until=2\",\"enospc:step=4\"]");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(config), {}).find("inject"), std::string::npos);
}

TEST_F(Faults, AStallOfOneThreadIsRefusedUnlessItEnds) {
  EXPECT_EQ(run(request("stall", {"stall:rank=1,step=3"})),
            "--inject stall:rank=1,step=3: ranks that are threads cannot be stopped one by one");
  EXPECT_EQ(run(request("short", {"stall:rank=1,step=3,point=reduce,seconds=0.05"})), "");
}

TEST_F(Faults, ReplicasNeedRanksThatHoldTheSame) {
  TrainRequest r = request("alone", {}, 1);
  r.check_replicas = 2;
  EXPECT_EQ(run(r), "--check-replicas is 2, and no two ranks hold the same part of the model");
}

// Whatever allocation of a step fails, on whichever rank: one error on all, with what is largest, and a file.
// The other ranks do not hang: they are threads of this test.
TEST_F(Faults, DeviceMemoryThatRunsOutIsNamedTensorByTensor) {
  struct Case {
    const char* name;
    int ranks;
    const char* strategy;
  };
  for (const Case& c : {Case{"one", 1, "none"}, Case{"two", 2, "fsdp"}}) {
    int failed = 0;
    for (const int call : {1, 17, 33, 49, 65, 1000000}) {
      TrainRequest r = request(cat(c.name, call), {cat("oom:rank=", c.ranks - 1, ",step=2,call=", call)},
                               c.ranks, c.strategy);
      r.steps = 2;
      r.save_every = 2;
      const std::string said = run(r), file = r.run + cat("/out-of-memory-rank-", c.ranks - 1, ".pickle");
      if (said.empty()) {  // a step has fewer allocations
        EXPECT_TRUE(warned("injected faults that did not happen")) << this->said();
        continue;
      }
      ++failed;
      EXPECT_NE(said.find("out of memory"), std::string::npos) << said;
      EXPECT_NE(said.find(", peak "), std::string::npos) << said;
      EXPECT_NE(said.find("largest tensors: "), std::string::npos) << said;
      EXPECT_NE(said.find(file), std::string::npos) << said;
      EXPECT_GT(std::filesystem::file_size(file), 1000u);
    }
    EXPECT_EQ(failed, 5) << c.name;
  }
}

TEST_F(Faults, NoSnapshotIsWrittenWhereNoneIsWanted) {
  TrainRequest r = request("off", {"oom:step=1,call=5"}, 1);
  r.oom_snapshot = "off";
  const std::string said = run(r);
  EXPECT_NE(said.find("out of memory"), std::string::npos) << said;
  EXPECT_EQ(said.find("memory_viz"), std::string::npos) << said;
  EXPECT_FALSE(std::filesystem::exists(r.run + "/out-of-memory-rank-0.pickle"));
  r.oom_snapshot = folder / "there.pickle";
  r.run = folder / "on";
  EXPECT_NE(run(r).find(r.oom_snapshot), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(r.oom_snapshot));
}

}  // namespace
}  // namespace kiln::cli
