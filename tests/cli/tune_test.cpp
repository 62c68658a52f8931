// Which choices a command takes, and that a resumed run takes those it started with. The GPU is a made-up
// one: nothing here runs a matmul on it.
#include <gtest/gtest.h>

#include "base/error.h"
#include "studies/tune/render.h"
#include "support/temp_folder.h"
#include "train/run/tuned.h"

namespace kiln::cli {
namespace {

const TunePlace kHere{"NVIDIA H200", 130100};

TuneFile file_with(const std::string& algorithm, const TunePlace& place = kHere) {
  return {place, "build", {{"16x16x8 bf16", algorithm, 1, 2}}};
}

struct Lines {
  std::vector<std::string> all;
  Say say() {
    return [this](const std::string& line) { all.push_back(line); };
  }
};

TEST(Tuning, AutoTakesTheFileOfThisGpuWhereThereIsOne) {
  const TempFolder folder;
  Lines lines;
  EXPECT_FALSE(find_tuning("auto", folder.path(), kHere, lines.say()));
  EXPECT_TRUE(lines.all.empty());
  write_tune_file(folder / "tune-nvidia-h200.json", file_with("0a"));
  const auto found = find_tuning("auto", folder.path(), kHere, lines.say());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->choices.at(0).algorithm, "0a");
  ASSERT_EQ(lines.all.size(), 1u);
  EXPECT_NE(lines.all[0].find("tune-nvidia-h200.json"), std::string::npos);
  EXPECT_FALSE(find_tuning("off", folder.path(), kHere, lines.say()));
  EXPECT_FALSE(find_tuning("auto", folder.path(), std::nullopt, lines.say()));  // on the CPU
  EXPECT_EQ(lines.all.size(), 1u);
}

TEST(Tuning, WhatDoesNotHoldHereIsLeftByAutoAndRefusedByName) {
  const TempFolder folder;
  Lines lines;
  const std::string path = folder / "tune-nvidia-h200.json";
  write_tune_file(path, file_with("0a", {"NVIDIA H200", 120000}));
  EXPECT_FALSE(find_tuning("auto", folder.path(), kHere, lines.say()));
  ASSERT_EQ(lines.all.size(), 1u);
  EXPECT_NE(lines.all[0].find("cuBLASLt 12.0.0; this is 13.1.0"), std::string::npos) << lines.all[0];
  EXPECT_NE(lines.all[0].find("kiln tune"), std::string::npos) << lines.all[0];
  const std::string said = KILN_ERROR_OF(find_tuning(path, "elsewhere", kHere, lines.say()));
  EXPECT_NE(said.find("12.0.0"), std::string::npos) << said;
  EXPECT_NE(said.find("run `kiln tune` here"), std::string::npos) << said;
  EXPECT_NE(KILN_ERROR_OF(find_tuning(folder / "none", "", kHere, lines.say())).find("no such file"),
            std::string::npos);
  EXPECT_NE(KILN_ERROR_OF(find_tuning(path, "", std::nullopt, lines.say())).find("nothing to choose"),
            std::string::npos);
  folder.write("tune-nvidia-h200.json", "[]");
  EXPECT_NE(KILN_ERROR_OF(find_tuning("auto", folder.path(), kHere, lines.say())), "nothing");
}

TEST(Tuning, AResumedRunTakesTheChoicesItStartedWith) {
  const TempFolder folder;
  Lines lines;
  const std::string tuned = folder / "tune-nvidia-h200.json";
  write_tune_file(tuned, file_with("0a"));
  {
    const RunFolder run(folder / "run");
    ASSERT_TRUE(tuning_of_run(run, false, "auto", kHere, lines.say()));
  }
  write_tune_file(tuned, file_with("0b"));  // tuned again since
  {
    const RunFolder run(folder / "run");
    for (const std::string& tune : {std::string("auto"), std::string("off"), tuned}) {
      lines.all.clear();
      const auto kept = tuning_of_run(run, true, tune, kHere, lines.say());
      ASSERT_TRUE(kept) << tune;
      EXPECT_EQ(kept->choices.at(0).algorithm, "0a") << tune;
      EXPECT_EQ(lines.all.size(), tune == "auto" ? 0u : 1u) << tune;
    }
  }
  const RunFolder run(folder / "run");
  EXPECT_EQ(tuning_of_run(run, false, "auto", kHere, lines.say())->choices.at(0).algorithm, "0b");
}

TEST(Tuning, ARunStartedWithoutChoicesResumesWithout) {
  const TempFolder folder;
  Lines lines;
  const RunFolder run(folder / "run");
  EXPECT_FALSE(tuning_of_run(run, false, "off", kHere, lines.say()));
  write_tune_file(folder / "tune-nvidia-h200.json", file_with("0a"));
  EXPECT_FALSE(tuning_of_run(run, true, "auto", kHere, lines.say()));
  EXPECT_TRUE(lines.all.empty());
  EXPECT_FALSE(tuning_of_run(run, true, folder / "tune-nvidia-h200.json", kHere, lines.say()));
  EXPECT_EQ(lines.all.size(), 1u);
}

TEST(Tuning, ARunKilledBeforeItsFirstCheckpointLeavesNoChoicesBehind) {
  const TempFolder folder;
  Lines lines;
  const RunFolder run(folder / "run");
  write_tune_file(folder / "tune-nvidia-h200.json", file_with("0a"));
  ASSERT_TRUE(tuning_of_run(run, false, "auto", kHere, lines.say()));
  EXPECT_FALSE(tuning_of_run(run, false, "off", kHere, lines.say()));
  EXPECT_FALSE(tuning_of_run(run, true, "auto", kHere, lines.say()));
}

TEST(Tuning, OnAnotherDeviceARunResumesAndSaysSo) {
  const TempFolder folder;
  Lines lines;
  const RunFolder run(folder / "run");
  write_tune_file(run.file("gemm.json"), file_with("0a"));
  EXPECT_FALSE(tuning_of_run(run, true, "auto", TunePlace{"NVIDIA A100", 130100}, lines.say()));
  EXPECT_FALSE(tuning_of_run(run, true, "auto", std::nullopt, lines.say()));
  ASSERT_EQ(lines.all.size(), 2u);
  for (const std::string& line : lines.all)
    EXPECT_NE(line.find("last bits may differ"), std::string::npos) << line;
  EXPECT_TRUE(tuning_of_run(run, true, "auto", kHere, lines.say()));  // and back again
}

TEST(Tuning, StartingAfreshMovesTheChoicesAside) {
  const TempFolder folder;
  const RunFolder run(folder / "run");
  write_tune_file(run.file("gemm.json"), file_with("0a"));
  const std::string aside = run.set_aside();
  EXPECT_FALSE(std::filesystem::exists(run.file("gemm.json")));
  EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(aside) / "gemm.json"));
}

TEST(Tune, HasNothingToDoOnTheCpu) {
  const TempFolder folder;
  TuneRequest request;
  request.device = Device::cpu();
  try {
    (void)tune(request, folder / "out", [](const std::string&) {}, [](const std::string&) {});
    FAIL() << "it tuned the CPU";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::unavailable);
    EXPECT_NE(std::string(e.what()).find("nothing to tune on cpu"), std::string::npos) << e.what();
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

TEST(Tune, PagesCountAStepsCalls) {
  TuneReport report;
  report.place = kHere;
  report.file = "runs/tune-nvidia-h200.json";
  report.choices = 7;
  report.steps.push_back({find_model_size("small"),
                          512,
                          Precision::bf16,
                          {{"8x8x8 bf16*bf16->bf16 strides 8,8,8 align 16", "00", 2, 3, 10},
                           {"9x9x9 bf16*bf16->bf16 strides 9,9,9 align 16", "00", 5, 5, 2}}});
  EXPECT_EQ(report.steps[0].default_us(), 40);
  EXPECT_EQ(report.steps[0].tuned_us(), 30);
  const std::string page = written(tune_page(report), PageFormat::text);
  EXPECT_EQ(page.find("strides"), std::string::npos) << page;
  EXPECT_LT(page.find("8x8x8 bf16*bf16->bf16"), page.find("9x9x9")) << page;  // 20 us a step before 10
  EXPECT_NE(page.find("1.50"), std::string::npos) << page;
  EXPECT_NE(page.find("7 choices for NVIDIA H200 in runs/tune-nvidia-h200.json"), std::string::npos) << page;
  EXPECT_NE(written(tune_page(report), PageFormat::json).find("\"default_us\": 40.0"), std::string::npos);
}

}  // namespace
}  // namespace kiln::cli
