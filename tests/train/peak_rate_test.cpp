// What ranks can reach together: they share a machine's cores, and add up its GPUs.
#include "train/run/peak_rate.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

constexpr double kOne = 100;  // of one rank by itself

TEST(PeakRate, CpuRanksShareTheCores) {
  const RankPlaces eight{.world = 8, .here = 8, .cores = 2};
  EXPECT_EQ(peak_of_ranks(kOne, DeviceType::cpu, 1, eight), 2 * kOne) << "8 ranks of a thread on 2 cores";
  EXPECT_EQ(peak_of_ranks(kOne, DeviceType::cpu, 2, eight), kOne) << "one rank has both already";
  EXPECT_EQ(peak_of_ranks(kOne, DeviceType::cpu, 4, eight), kOne) << "and more threads than cores";
  EXPECT_EQ(peak_of_ranks(kOne, DeviceType::cpu, 2, {.world = 4, .here = 4, .cores = 16}), 4 * kOne);
  EXPECT_EQ(peak_of_ranks(kOne, DeviceType::cpu, 2, {.world = 1, .here = 1, .cores = 2}), kOne);
}

TEST(PeakRate, MachinesAdd) {
  const RankPlaces two{.world = 8, .here = 4, .processes = true, .cores = 2};
  EXPECT_EQ(peak_of_ranks(kOne, DeviceType::cpu, 1, two), 4 * kOne);
}

TEST(PeakRate, GpusAddAndRanksOfOneGpuShareIt) {
  EXPECT_EQ(peak_of_ranks(kOne, DeviceType::cuda, 1, {.world = 4, .here = 4, .processes = true, .gpus = 4}),
            4 * kOne);
  EXPECT_EQ(peak_of_ranks(kOne, DeviceType::cuda, 1, {.world = 4, .here = 4, .processes = true, .gpus = 1}),
            kOne);
  EXPECT_EQ(peak_of_ranks(kOne, DeviceType::cuda, 1, {.world = 4, .here = 4, .processes = false, .gpus = 4}),
            kOne)
      << "threads of one process share its GPU";
  EXPECT_EQ(peak_of_ranks(kOne, DeviceType::cuda, 1, {.world = 16, .here = 8, .processes = true, .gpus = 8}),
            16 * kOne);
}

}  // namespace
}  // namespace kiln
