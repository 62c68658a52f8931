#include "studies/warmup/warmup_study.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/size_registry.h"

namespace kiln {
namespace {

FirstStepFacts facts() {
  FirstStepFacts f;
  f.first = 2.0;
  f.steady = 0.5;
  f.second = 0.6;
  f.products_first = 0.7;
  f.products_warm = 0.1;
  f.others_first = 0.5;
  f.others_warm = 0.2;
  f.growth = 0.04;
  f.growth_inside_ops = 0.03;
  f.touch = 0.25;
  f.faults_first = 1100;
  f.faults_warm = 100;
  f.faults_in_products = 700;
  f.faults_in_others = 200;
  f.fault = 1e-5;
  return f;
}

double sum(const FirstStepParts& p) {
  return p.module_load + p.matrix_library + p.allocator_growth + p.page_faults + p.clock_ramp - p.hidden +
         p.rest;
}

TEST(FirstStep, OnTheCpuItIsMemoryThatIsTouchedForTheFirstTime) {
  const FirstStepParts p = split_first_step(facts());
  EXPECT_DOUBLE_EQ(p.excess, 1.5);
  EXPECT_DOUBLE_EQ(p.allocator_growth, 0.04);
  EXPECT_DOUBLE_EQ(p.page_faults, 0.25);
  FirstStepFacts more = facts();
  more.faults_first = 100100;  // a second's worth of pages that were there before
  EXPECT_NEAR(split_first_step(more).page_faults, 1.0, 1e-12);
  EXPECT_NEAR(p.clock_ramp, 0.1, 1e-12);
  EXPECT_EQ(p.module_load, 0);
  EXPECT_EQ(p.matrix_library, 0);
  EXPECT_NEAR(sum(p), p.excess, 1e-12);
}

TEST(FirstStep, OnAGpuItIsCodeAndTheLibrary) {
  FirstStepFacts f = facts();
  f.gpu = true;
  FirstStepParts p = split_first_step(f);
  EXPECT_NEAR(p.matrix_library, 0.6 - 0.007, 1e-12);
  EXPECT_NEAR(p.page_faults, 0.01, 1e-12);
  EXPECT_NEAR(p.module_load, 0.3 - 0.03 - 0.002, 1e-12);
  EXPECT_NEAR(sum(p), p.excess, 1e-12);
  f.products_first = 1.0;  // a slower library is the library's, not the code's
  const FirstStepParts q = split_first_step(f);
  EXPECT_NEAR(q.matrix_library - p.matrix_library, 0.3, 1e-12);
  EXPECT_EQ(q.module_load, p.module_load);
  EXPECT_NEAR(q.rest, p.rest - 0.3, 1e-12);
  f.others_first = 0.1;  // faster than warm: noise, not a gain
  EXPECT_EQ(split_first_step(f).module_load, 0);
}

// Pages of a file in the cache cost less than fresh ones: they cannot have taken longer than the ops they
// were touched in.
TEST(FirstStep, NoMoreOfAnOpIsPutDownToPagesThanItTook) {
  FirstStepFacts f = facts();
  f.gpu = true;
  f.faults_first = 1'000'100;
  f.faults_in_products = 900'000;
  const FirstStepParts p = split_first_step(f);
  EXPECT_EQ(p.matrix_library, 0);
  EXPECT_NEAR(p.page_faults, 0.6 + 0.002 + (1'000'000 - 900'200) * 1e-5, 1e-9);
  EXPECT_NEAR(sum(p), p.excess, 1e-9);
}

// The host is late in a step the device works through meanwhile: parts add up to more than the step took, but
// by no more than there was to work on.
TEST(FirstStep, WhatPassesBesideTheDevicesWorkIsSaid) {
  FirstStepFacts f = facts();
  f.gpu = true;
  const FirstStepParts p = split_first_step(f);
  EXPECT_EQ(p.hidden, 0);
  f.first = 1.3;  // an excess of 0.8, of which parts explain 1.01
  const FirstStepParts q = split_first_step(f);
  EXPECT_NEAR(q.hidden, sum(p) - p.rest - 0.8, 1e-12);
  EXPECT_NEAR(q.rest, 0, 1e-12);
  f.first = 0.9;
  const FirstStepParts most = split_first_step(f);
  EXPECT_EQ(most.hidden, f.steady);
  EXPECT_LT(most.rest, 0);
  f.gpu = false;  // where the host does the work nothing overlaps it
  EXPECT_EQ(split_first_step(f).hidden, 0);
}

TEST(Warmup, EveryStepIsTimedAndThePartsAddUp) {
  StepSpec spec;
  spec.model = config_of(find_model_size("nano"));
  spec.step.batch = 2;
  spec.step.context = 13;
  spec.step.graph = false;
  RankOptions rank;
  rank.threads = 1;
  bool prepared = false;
  const WarmupRun run = run_warmup(rank, spec, 2, 5, [&](RankContext&) { prepared = true; });
  EXPECT_TRUE(prepared);
  EXPECT_EQ(run.steps.size(), 7U);
  EXPECT_EQ(run.warmups, 2);
  EXPECT_FALSE(run.captured);
  for (double s : run.steps) EXPECT_GT(s, 0);
  EXPECT_EQ(run.facts.first, run.steps[0]);
  EXPECT_EQ(run.facts.second, std::min(run.steps[1], run.steps[2]));
  EXPECT_NEAR(sum(run.parts), run.parts.excess, 1e-12);
  EXPECT_GT(run.facts.fault, 0);
  EXPECT_GT(run.facts.products_first, 0);
  EXPECT_GT(run.facts.others_warm, 0);
  EXPECT_GT(run.memory.peak_total, static_cast<std::size_t>(4 * 4 * param_count(find_model_size("nano"))));
}

}  // namespace
}  // namespace kiln
