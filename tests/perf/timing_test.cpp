#include "perf/timing/timing.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "perf/timing/ceilings.h"

namespace kiln {
namespace {

TEST(Timing, StatisticsOfKnownSamples) {
  const Timing t = summarize({5, 1, 4, 2, 3});
  EXPECT_EQ(t.min, 1);
  EXPECT_EQ(t.p50, 3);
  EXPECT_DOUBLE_EQ(t.p20, 1.8);
  EXPECT_DOUBLE_EQ(t.p80, 4.2);
  EXPECT_DOUBLE_EQ(t.p95, 4.8);
  EXPECT_EQ(t.mean, 3);
  EXPECT_DOUBLE_EQ(t.std, std::sqrt(2.5));
  EXPECT_EQ(t.samples.front(), 5) << "samples keep their order";
  EXPECT_EQ(summarize({7}).p95, 7);
  EXPECT_EQ(summarize({7}).std, 0);
  EXPECT_EQ(summarize({}).p50, 0);
}

TEST(Timing, NoiseHasAName) {
  std::vector<double> calm(40, 1.0), tail = calm, wide, drift = calm;
  for (int i = 0; i < 3; ++i) tail[i * 13] = 5;
  for (int i = 0; i < 40; ++i) wide.push_back(1 + 0.02 * (i % 20));
  for (int i = 20; i < 40; ++i) drift[i] = 1.12;
  EXPECT_EQ(summarize(calm).noise(), "");
  EXPECT_NE(summarize(tail).noise().find("long tail"), std::string::npos);
  EXPECT_NE(summarize(wide).noise().find("noisy"), std::string::npos);
  EXPECT_NE(summarize(drift).noise().find("12 % slower"), std::string::npos) << summarize(drift).noise();
  EXPECT_EQ(summarize({1, 1}).noise(), "only 2 samples");
}

TEST(Timing, TwoVisitsAreOneMeasurement) {
  const TimingOptions whole{
      .warmups = 2, .min_samples = 11, .max_samples = 100, .min_seconds = 1, .max_seconds = 3};
  const TimingOptions half = for_each_visit(whole, 2);
  EXPECT_EQ(half.warmups, 2) << "each visit finds the caches cold";
  EXPECT_EQ(half.min_samples, 6);
  EXPECT_EQ(half.max_samples, 50);
  EXPECT_DOUBLE_EQ(half.min_seconds, 0.5);
  EXPECT_DOUBLE_EQ(half.max_seconds, 1.5);
  Timing first = summarize({1, 2, 3});
  first.first = 9;
  first.warmups = 2;
  const Timing both = merged(first, summarize({7, 8}));
  EXPECT_EQ(both.samples, (std::vector<double>{1, 2, 3, 7, 8}));
  EXPECT_EQ(both.p50, 3);
  EXPECT_EQ(both.first, 9);
  EXPECT_EQ(both.warmups, 2);
}

TEST(Timing, CallsPrepareAndWaitAroundEverySample) {
  int calls = 0, prepared = 0, waits = 0;
  TimingOptions o;
  o.warmups = 3;
  o.min_samples = 12;
  o.min_seconds = 0;
  const Timing t = time_work({[&] { ++calls; },
                              [&] {
                                EXPECT_EQ(prepared, calls);
                                ++prepared;
                              },
                              [&] { ++waits; }},
                             o);
  EXPECT_EQ(t.samples.size(), 12U);
  EXPECT_EQ(t.warmups, 3);
  EXPECT_EQ(calls, 15);
  EXPECT_EQ(prepared, 15);
  EXPECT_EQ(waits, 30);
}

TEST(Timing, SlowWorkGetsFewSamples) {
  int calls = 0;
  TimingOptions o;
  o.max_seconds = 0.002;
  const Timing t = time_work({[&] {
                               ++calls;
                               std::this_thread::sleep_for(std::chrono::milliseconds(5));
                             }},
                             o);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(t.warmups, 0);
  EXPECT_GE(t.p50, 0.005);
}

// Figures depend on the machine; that there are some does not.
TEST(Ceilings, MeasuresEveryLevelThisCpuHas) {
  ThreadPool pool(2);
  const CpuIsa isa = best_cpu_isa();
  const CpuCeilings c = measure_cpu_ceilings(pool, isa, {.seconds_each = 0.003, .one_thread = true});
  EXPECT_EQ(c.fma.size(), isa >= CpuIsa::avx512 ? 3U : isa >= CpuIsa::avx2 ? 2U : 1U);
  for (const auto& f : c.fma) {
    EXPECT_GT(f.flops.one, 0) << name_of(f.isa);
    EXPECT_GT(f.flops.all, 0) << name_of(f.isa);
  }
  EXPECT_GT(c.copy.all, 0);
  EXPECT_EQ(c.bf16_dot.has_value(), isa >= CpuIsa::avx512_bf16);
  EXPECT_EQ(c.amx.has_value(), isa >= CpuIsa::amx);
  EXPECT_GT(c.flops_for(DType::bf16, isa).all, 0);
  EXPECT_EQ(c.flops_for(DType::f32, CpuIsa::plain).all, c.fma[0].flops.all);
}

TEST(Ceilings, NothingAboveTheAllowedLevelIsRun) {
  ThreadPool pool(1);
  const CpuCeilings c =
      measure_cpu_ceilings(pool, CpuIsa::plain, {.seconds_each = 0.001, .one_thread = false});
  EXPECT_EQ(c.fma.size(), 1U);
  EXPECT_FALSE(c.bf16_dot || c.amx);
  const CpuCeilings both = best_of(c, c);
  EXPECT_EQ(both.copy.all, c.copy.all);
}

}  // namespace
}  // namespace kiln
