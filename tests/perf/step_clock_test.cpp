// What a planned step's time goes by, and that it says so.
#include "perf/model/step_clock.h"

#include <gtest/gtest.h>

#include "perf/model/machine.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

TimedOp product(double flops) {
  TimedOp op;
  op.op = "linear";
  op.variant = "packed";
  op.cost = {flops, 1e3};
  op.rows = op.columns = 64;
  return op;
}

TEST(StepClock, OfAMachineNobodyHasDescribedItsRatesAreNominal) {
  const TempFolder folder;
  const StepClock clock = clock_of(folder.path(), Device::cpu(), 2, DType::f32);
  EXPECT_TRUE(clock.nominal);
  EXPECT_EQ(clock.kind(), "nominal roofline");
  EXPECT_NE(clock.note.find("kiln doctor --calibrate"), std::string::npos);
  const std::vector<TimedOp> ops = {product(1e9), product(2e9)};
  EXPECT_NEAR(clock.seconds(ops) / clock.seconds({ops.data(), 1}), 3, 1e-9);
  const StepClock four = clock_of(folder.path(), Device::cpu(), 4, DType::f32);
  EXPECT_NEAR(clock.seconds(ops) / four.seconds(ops), 2, 1e-9);
}

TEST(StepClock, GoesByTheMachinesOwnFile) {
  const TempFolder folder;
  const Machine here = machine_of(Device::cpu(), 2);
  Hardware h;
  h.name = "mine";
  h.title = "this machine";
  h.from = "a test";
  h.device = here.device;
  h.kind = DeviceType::cpu;
  h.memory = 1e9;
  h.bytes_per_s = 1e10;
  h.flops = {{"fp32", 1e11}};
  folder.write(hardware_file_name(here), hardware_text(h));
  const StepClock clock = clock_of(folder.path(), Device::cpu(), 2, DType::f32);
  EXPECT_FALSE(clock.nominal);
  EXPECT_EQ(clock.kind(), "roofline");
  const std::vector<TimedOp> ops = {product(1e9)};
  EXPECT_NEAR(clock.seconds(ops), 0.01, 1e-9);
  EXPECT_NEAR(clock.for_compute(DType::bf16).seconds(ops), 0.01, 1e-9) << "there is no rate of bf16";
  EXPECT_TRUE(clock_of(folder.path(), Device::cpu(), 2, DType::bf16).nominal);
  EXPECT_EQ(clock_of(h, DType::f32).kind(), "roofline");
}

}  // namespace
}  // namespace kiln
