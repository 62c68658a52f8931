#include "perf/model/machine.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/build_info.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

Machine this_one() { return {DeviceType::cpu, "Some CPU @ 2.5GHz", "avx2", 4}; }

Hardware calibrated() {
  Hardware h;
  h.name = "mine";
  h.title = "Mine";
  h.from = "a test";
  h.device = this_one().device;
  h.measured = true;
  h.memory = 1e9;
  h.bytes_per_s = 2e10;
  h.flops = {{"fp32", 1e11}, {"bf16", 2e12}};
  h.link = HardwareLink{"wire", 1e9, 2e-6};
  Calibration c;
  c.date = "2026-11-19";
  c.build = build_info().build_id;
  c.isa = "avx2";
  c.threads = 4;
  c.dispatch = 1e-6;
  c.curves = {{{"linear", "packed", "forward", "fp32", "fp32"}, {{{1e9, 1e6, 64, 128}, 2e-3}}}};
  h.calibration = c;
  return h;
}

void store(const TempFolder& folder, const Hardware& h) {
  std::ofstream(folder.path() + "/" + hardware_file_name(this_one())) << hardware_text(h);
}

TEST(Machine, AFilesNameIsItsDevicesInLowerCase) {
  EXPECT_EQ(hardware_file_name(this_one()), "hardware-some-cpu-2-5ghz.json");
  EXPECT_EQ(hardware_file_name({.kind = DeviceType::cuda, .device = "(?)"}), "hardware-unknown.json");
}

TEST(Machine, WhatIsWrittenOfHardwareReadsTheSame) {
  const std::string text = hardware_text(calibrated());
  const Hardware h = read_hardware(text, "mine.json");
  EXPECT_EQ(hardware_text(h), text);
  ASSERT_TRUE(h.calibration);
  EXPECT_EQ(h.calibration->curves.front().calls.front().seconds, 2e-3);
  EXPECT_EQ(h.device, this_one().device);
  EXPECT_EQ(h.link->latency, 2e-6);
}

TEST(Machine, ItsOwnFileIsTakenWithoutRemark) {
  const TempFolder folder;
  store(folder, calibrated());
  const KnownMachine known = known_machine(folder.path(), this_one());
  ASSERT_TRUE(known.hardware && known.hardware->calibration);
  EXPECT_EQ(known.note, "");
}

TEST(Machine, ACalibrationWithOtherThreadsIsLeftOutInWords) {
  const TempFolder folder;
  store(folder, calibrated());
  Machine other = this_one();
  other.threads = 2;
  const KnownMachine known = known_machine(folder.path(), other);
  ASSERT_TRUE(known.hardware);
  EXPECT_FALSE(known.hardware->calibration);
  EXPECT_NE(known.note.find("4 threads; this run has 2"), std::string::npos) << known.note;
  EXPECT_NE(known.note.find("kiln doctor --calibrate"), std::string::npos) << known.note;
}

TEST(Machine, ACalibrationOfAnotherBuildIsUsedAndSaid) {
  const TempFolder folder;
  Hardware h = calibrated();
  h.calibration->build = "0123abc";
  store(folder, h);
  const KnownMachine known = known_machine(folder.path(), this_one());
  ASSERT_TRUE(known.hardware && known.hardware->calibration);
  EXPECT_NE(known.note.find("calibrated by kiln 0123abc"), std::string::npos) << known.note;
}

TEST(Machine, OfWhichNothingIsKnownIsSaid) {
  const TempFolder folder;
  const KnownMachine known = known_machine(folder.path(), this_one());
  EXPECT_FALSE(known.hardware);
  EXPECT_NE(known.note.find("there is no hardware file of Some CPU"), std::string::npos) << known.note;
}

}  // namespace
}  // namespace kiln
