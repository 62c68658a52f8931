#include "perf/timing/gpu_load.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "perf/timing/host_load.h"

namespace kiln {
namespace {

// The driver's library of two GPUs; the second one's state is set here.
struct FakeDriver {
  void* const library = ::dlopen(KILN_FAKE_NVML, RTLD_NOW);
  template <class T>
  T* find(const char* name) const {
    return reinterpret_cast<T*>(::dlsym(library, name));
  }
  void set(unsigned mhz, unsigned long long reasons, const std::vector<unsigned>& pids) const {
    using Set = void(unsigned, unsigned long long, unsigned, const unsigned*);
    find<Set>("fake_nvml_set")(mhz, reasons, static_cast<unsigned>(pids.size()), pids.data());
  }
  int open() const { return *find<int>("fake_nvml_open"); }
  int reads() const { return *find<int>("fake_nvml_reads"); }
  ~FakeDriver() { ::dlclose(library); }
};

constexpr const char* kBus = "0000:af:00.0";

TEST(GpuLoad, TheDriversLibraryIsReadByTheBusOfTheGpu) {
  const FakeDriver driver;
  driver.set(1755, kPowerCap, {812, 9});
  {
    const std::unique_ptr<Nvml> nvml = Nvml::open(KILN_FAKE_NVML);
    ASSERT_TRUE(nvml);
    ASSERT_EQ(nvml->gpus().size(), 2u);
    EXPECT_EQ(nvml->gpus()[0].bus, "0000:18:00.0") << "as CUDA writes it";
    EXPECT_EQ(nvml->gpus()[1].bus, kBus);
    const GpuSample s = nvml->read(nvml->gpus()[1]);
    EXPECT_DOUBLE_EQ(s.sm_mhz, 1755);
    EXPECT_DOUBLE_EQ(s.most_sm_mhz, 1980);
    EXPECT_DOUBLE_EQ(s.watts, 300);
    EXPECT_DOUBLE_EQ(s.most_watts, 700);
    EXPECT_DOUBLE_EQ(s.celsius, 40);
    EXPECT_EQ(s.held_back, kPowerCap) << "by the name that older drivers have for it";
    EXPECT_EQ(s.pids, (std::vector<int>{812, 9}));
  }
  EXPECT_EQ(driver.open(), 0) << "it is shut down again";
  EXPECT_FALSE(Nvml::open("libno-such-driver.so.1"));
}

GpuSample sample(double mhz, uint64_t reasons, std::vector<int> pids) {
  return {.sm_mhz = mhz,
          .most_sm_mhz = 1980,
          .watts = 690,
          .most_watts = 700,
          .celsius = 61,
          .held_back = reasons,
          .pids = std::move(pids)};
}

TEST(GpuLoad, OwnProcessesAreNoLoadAndOthersAreCounted) {
  const std::vector<int> own = {10, 11};
  const auto others = [&](std::vector<int> pids) {
    const std::vector<GpuSample> one = {sample(1900, 0, std::move(pids))};
    return load_of(one, own).others;
  };
  EXPECT_EQ(others({}), 0);
  EXPECT_EQ(others({10}), 0);
  EXPECT_EQ(others({10, 11}), 0) << "the other rank of this run";
  EXPECT_EQ(others({10, 77}), 1);
  EXPECT_EQ(others({4711}), 0) << "this process by its number outside of the container";
  EXPECT_EQ(others({4711, 4712, 4713}), 2);
}

TEST(GpuLoad, WhatHeldTheClockBackIsSaidAndThePowerLimitIsNot) {
  const std::vector<GpuSample> capped(20, sample(1500, kPowerCap, {1}));
  const GpuLoad busy = load_of(capped, {});
  EXPECT_DOUBLE_EQ(busy.power_capped, 1);
  EXPECT_DOUBLE_EQ(busy.median_sm_mhz, 1500);
  EXPECT_EQ(busy.why_unreliable(), "") << "matmuls reach the board's limit on every chip";

  std::vector<GpuSample> hot = capped;
  hot[3].held_back = kHardwareThermal;
  hot[3].sm_mhz = 1200;
  EXPECT_EQ(load_of(hot, {}).why_unreliable(), "") << "one sample of twenty";
  hot[4] = hot[3];
  const GpuLoad load = load_of(hot, {});
  EXPECT_DOUBLE_EQ(load.least_sm_mhz, 1200);
  EXPECT_EQ(load.why_unreliable(),
            "heat or the supply held the GPU's clock back in 10 % of the samples (1500 of 1980 MHz, 61 C)");
  hot[5].pids = {1, 2, 3};
  const HostLoad host{.seconds = 1, .cpus = 2, .gpu = load_of(hot, {})};
  EXPECT_TRUE(host.why_unreliable().starts_with("2 other processes compute on the GPU; heat or"))
      << host.why_unreliable();
  EXPECT_TRUE(host.why_unreliable().ends_with(": timings unreliable"));
}

TEST(GpuWatch, AsksWhileItLivesAndOnceForWhatWasShort) {
  const FakeDriver driver;
  driver.set(1410, 0, {1, 2});
  const int before = driver.reads();
  {
    const GpuWatch watch(KILN_FAKE_NVML);
    const std::optional<GpuLoad> load = watch.load(kBus, {});
    ASSERT_TRUE(load);
    EXPECT_EQ(load->samples, 1);
    EXPECT_EQ(load->others, 1);
    EXPECT_DOUBLE_EQ(load->median_sm_mhz, 1410);
    EXPECT_FALSE(watch.load("0000:99:00.0", {})) << "no such GPU";
    EXPECT_FALSE(watch.load("", {}));
    // Its thread keeps asking; a slow machine gets as long as it needs.
    while (watch.load(kBus, {})->samples < 2) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_GT(driver.reads(), before);
  EXPECT_EQ(driver.open(), 0) << "the watch has ended, and its thread with it";
  const GpuWatch nothing("libno-such-driver.so.1");
  EXPECT_FALSE(nothing.load(kBus, {}));
}

}  // namespace
}  // namespace kiln
