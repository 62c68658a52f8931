#include "perf/memory/memory_analysis.h"

#include <gtest/gtest.h>

#include "support/memory_events.h"

namespace kiln {
namespace {

TEST(MemoryAnalysis, PeakTagsPhasesAndLives) {
  const MemoryAnalysis a = analyse(small_record());
  EXPECT_EQ(a.in_use, (std::vector<std::size_t>{0, 4096, 5120, 5632, 4608, 5120}));
  EXPECT_EQ(a.peak.event, 3u);
  EXPECT_EQ(a.peak.bytes, 5632u);
  EXPECT_EQ(a.peak.by_tag[Tag::activation], 1536u);
  EXPECT_EQ(a.peak.by_tag[Tag::workspace], 0u);
  EXPECT_EQ(a.own_peak[Tag::workspace], 512u);
  EXPECT_EQ(a.peak_reserved, 8192u);
  ASSERT_EQ(a.phases.size(), 3u);
  EXPECT_EQ(a.phases[2].phase, Phase::backward);
  EXPECT_EQ(a.phases[2].peak.bytes, 5120u);
  ASSERT_EQ(a.lives.size(), 4u);
  EXPECT_EQ(a.lives[1].end, 4u);
  EXPECT_EQ(a.lives[0].end, 6u);  // never freed
}

TEST(MemoryAnalysis, AChangedEventChangesEveryTable) {
  MemoryRecord r = small_record();
  std::vector<MemoryGroup> ops = group_by(r, analyse(r), op_key);
  EXPECT_EQ(ops[0].name, "setup (no op)");
  EXPECT_EQ(ops[1].name, "forward first (plain)");
  EXPECT_EQ(ops[1].at_peak, 1024u);
  EXPECT_EQ(group_by(r, analyse(r), layer_key)[1].name, "layers.3");
  EXPECT_EQ(group_by(r, analyse(r), line_key)[0].name, "src/ops/one/one.cpp:7");

  r.events[5].bytes = 1 << 20;  // the scratch of backward is now the peak
  const MemoryAnalysis a = analyse(r);
  EXPECT_EQ(a.peak.event, 5u);
  ops = group_by(r, a, op_key);
  EXPECT_EQ(ops[0].name, "backward first (plain)");
  EXPECT_EQ(ops[0].at_peak, std::size_t{1} << 20);
  for (const MemoryGroup& g : ops) {
    if (g.name == "forward first (plain)") {
      EXPECT_EQ(g.at_peak, 0u) << "it was freed before";
    }
  }
}

TEST(MemoryAnalysis, LargestAllocationsAtADetail) {
  MemoryRecord r = small_record();
  MemoryAnalysis a = analyse(r);
  std::vector<LargeAllocation> one = largest_allocations(r, a, 1);  // of four: one
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].bytes, 4096u);
  EXPECT_EQ(one[0].live_at_peak, 1);
  EXPECT_EQ(largest_allocations(r, a, 50).size(), 2u);
  EXPECT_EQ(largest_allocations(r, a, 100).size(), 4u);
  r.events[5] = r.events[3];  // the same again, elsewhere
  r.events[5].address += 512;
  a = analyse(r);
  const std::vector<LargeAllocation> all = largest_allocations(r, a, 100);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[2].count, 2);
  EXPECT_EQ(all[2].layers, (std::vector<std::string>{"loss"}));
  EXPECT_EQ(scores_at_peak(a, 511), 0u) << "of other ops";
  r.events[3].op = "attention";
  EXPECT_EQ(scores_at_peak(analyse(r), 511), 512u);
  EXPECT_EQ(scores_at_peak(analyse(r), 512), 0u);
  EXPECT_TRUE(largest_allocations({}, {}, 10).empty());
}

TEST(MemoryAnalysis, WhatWasThereBeforeCounts) {
  MemoryRecord r = small_record();
  r.before = {r.events[0], r.events[1]};
  r.events.erase(r.events.begin(), r.events.begin() + 2);
  const MemoryAnalysis a = analyse(r);
  EXPECT_EQ(a.peak.bytes, 5632u);
  EXPECT_EQ(a.peak.event, 1u);
  EXPECT_EQ(a.peak_reserved, 8192u);
  EXPECT_EQ(a.lives[0].begin, 0u);
}

TEST(MemoryAnalysis, PowerFits) {
  std::vector<double> x, quadratic, mixed;
  for (double n = 128; n <= 4096; n *= 2) {
    x.push_back(n);
    quadratic.push_back(3 * n * n);
    mixed.push_back(1000 * n + n * n);
  }
  EXPECT_NEAR(fit_power(x, quadratic).exponent, 2, 1e-12);
  EXPECT_NEAR(fit_power(x, quadratic).r2, 1, 1e-12);
  const PowerFit fit = fit_power(x, mixed);
  EXPECT_GT(fit.exponent, 1.1);
  EXPECT_LT(fit.exponent, 1.9);
  EXPECT_GT(fit.last, fit.exponent) << "the square takes over";
  EXPECT_THROW(fit_power({1}, {1}), Error);
}

TEST(MemoryAnalysis, FilesFromTheProjectsFolderOn) {
  EXPECT_EQ(short_file("/home/me/src/kiln/src/ops/add/add.cpp"), "src/ops/add/add.cpp");
  EXPECT_EQ(short_file("../src/ops/add/add.cpp"), "src/ops/add/add.cpp");
  EXPECT_EQ(short_file("src/ops/add/add.cpp"), "src/ops/add/add.cpp");
  EXPECT_EQ(short_file("elsewhere.cpp"), "elsewhere.cpp");
}

}  // namespace
}  // namespace kiln
