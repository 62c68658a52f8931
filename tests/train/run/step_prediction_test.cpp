// The time of a run's step before it begins, on a machine whose calibration is planted: structure, not
// figures.
#include "train/run/step_prediction.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/build_info.h"
#include "perf/model/machine.h"
#include "support/temp_folder.h"
#include "train/presets.h"
#include "train/run/known_link.h"

namespace kiln {
namespace {

constexpr double kStep = 1e-3;

// Every call of an op takes its roofline, a step a millisecond besides; sums of 2 and 4 ranks are calibrated.
Hardware planted() {
  const Machine here = machine_of(Device::cpu(), 0);
  Hardware h;
  h.name = "planted";
  h.title = "Planted";
  h.from = "a test";
  h.device = here.device;
  h.measured = true;
  h.memory = 1e12;
  h.bytes_per_s = 1e10;
  h.flops = {{"fp32", 1e11}, {"bf16", 1e11}};
  Calibration c;
  c.date = "2026-11-20";
  c.build = build_info().build_id;
  c.isa = here.isa;
  c.threads = here.threads;
  c.step = kStep;
  for (const char* pass : {"forward", "backward"})
    c.curves.push_back({{"linear", "packed", pass, "fp32", "fp32"}, {{{1e8, 1e6, 64, 128}, 1e-3}}});
  c.links = {{"threads", 2, 1e-4, 1e9}, {"threads", 4, 1e-4, 1e8}};
  h.calibration = c;
  return h;
}

class StepPrediction : public testing::Test {
 protected:
  StepPrediction() {
    run_.results = folder_.path();
    run_.run = folder_.path() + "/run";
    run_.device = Device::cpu();
    choose_variants("optimized", "", DeviceType::cpu).apply_to(request_.model);
    request_.step.batch = 2;
    request_.step.context = 32;
  }

  void calibrate(const std::string& folder, const Hardware& h = planted()) {
    std::ofstream(folder + "/" + hardware_file_name(machine_of(Device::cpu(), 0))) << hardware_text(h);
  }

  std::optional<double> seconds(int ranks, const std::string& strategy, const std::string& link = "") {
    run_.ranks = ranks;
    run_.strategy = strategy;
    run_.link = link;
    request_.strategy = strategy;
    request_.layout = layout_for(Precision::fp32, request_.step, ranks, strategy == "fsdp");
    RankOptions rank;
    rank.world = ranks;
    rank.threads = ranks > 1 ? 1 : 0;
    return predict_run_step(run_, request_, rank);
  }

  const TempFolder folder_;
  TrainRequest run_;
  MemoryRequest request_ = {
      .model = {.vocab = 256, .d_model = 64, .d_ff = 128, .layers = 2, .heads = 4, .kv_heads = 4},
      .layout = {},
      .step = {}};
};

TEST_F(StepPrediction, NothingIsSaidOfAMachineThatWasNotCalibrated) {
  EXPECT_FALSE(seconds(1, "none"));
  EXPECT_FALSE(seconds(2, "zero2", "latency=10us,bandwidth=1GB/s"));
}

TEST_F(StepPrediction, RanksNeedALinkAndTheCalibrationHasOne) {
  Hardware lonely = planted();
  lonely.calibration->links.clear();
  calibrate(folder_.path(), lonely);
  EXPECT_TRUE(seconds(1, "none"));
  EXPECT_FALSE(seconds(2, "zero2")) << "nothing is known of the link";
  EXPECT_TRUE(seconds(2, "zero2", "latency=10us,bandwidth=1GB/s"));
  calibrate(folder_.path());
  EXPECT_TRUE(seconds(2, "zero2"));
  EXPECT_EQ(find_link(run_)->from, "the calibrated link of 2 ranks");
  EXPECT_TRUE(seconds(3, "ddp:bucketed")) << "the nearest number of ranks";
  EXPECT_GT(*seconds(4, "ddp:naive"), *seconds(2, "ddp:naive")) << "whose link is ten times slower";
}

TEST_F(StepPrediction, RanksShareTheMachineAndPayForTheirLink) {
  calibrate(folder_.path());
  const double alone = *seconds(1, "none") - kStep;
  const std::string instant = "latency=1ns,bandwidth=1000000GB/s";
  for (const char* strategy :
       {"ddp:naive", "ddp:flat", "ddp:overlap", "ddp:bucketed", "zero1", "zero2", "fsdp"}) {
    const double quick = *seconds(2, strategy, instant) - kStep;
    // Each has half of the machine, and the same batch: twice the time of the ops that every rank runs.
    EXPECT_GT(quick, 1.5 * alone) << strategy;
    EXPECT_LT(quick, 2.2 * alone) << strategy;
    const double slow = *seconds(2, strategy, "latency=2ms,bandwidth=1GB/s") - kStep;
    EXPECT_GT(slow, quick + 2e-3) << strategy << ": it waits for one call at least";
  }
  const std::string wide = "latency=2ms,bandwidth=1GB/s";
  EXPECT_GT(*seconds(2, "ddp:naive", wide), *seconds(2, "ddp:flat", wide) + 10e-3)
      << "a latency for each parameter, not one for all";
}

TEST_F(StepPrediction, MicroStepsBeyondTheThirdAreCountedWithoutBeingRecorded) {
  calibrate(folder_.path());
  const auto of = [&](int micro_steps, int ranks, const char* strategy) {
    request_.step.micro_steps = micro_steps;
    return *seconds(ranks, strategy);
  };
  const double one_more = of(4, 1, "none") - of(3, 1, "none");
  EXPECT_GT(one_more, 0);
  EXPECT_NEAR(of(9, 1, "none"), of(4, 1, "none") + 5 * one_more, 1e-9);
  const double more = of(4, 2, "zero1") - of(3, 2, "zero1");
  EXPECT_NEAR(of(9, 2, "zero1"), of(4, 2, "zero1") + 5 * more, 1e-9);
}

TEST_F(StepPrediction, TheCalibrationIsLookedForBesideTheRunToo) {
  const std::string out = folder_.path() + "/runs/mine";
  std::filesystem::create_directories(out);
  run_.run = out;
  EXPECT_EQ(results_folder(run_, out), out);
  calibrate(folder_.path() + "/runs");
  EXPECT_EQ(results_folder(run_, out), folder_.path() + "/runs");
  calibrate(out);
  EXPECT_EQ(results_folder(run_, out), out) << "its own comes first";
}

}  // namespace
}  // namespace kiln
