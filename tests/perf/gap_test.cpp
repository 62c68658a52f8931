#include "perf/model/gap.h"

#include <gtest/gtest.h>

#include <numeric>

namespace kiln {
namespace {

constexpr double kCache = 1e6;

RunFacts facts() {
  RunFacts f;
  f.steps = 8;
  f.cache = kCache;
  f.processors = 2;
  return f;
}

// A call that is exactly as fast as its roofline, each time, with nothing before it.
CallEvidence exact() {
  CallEvidence c;
  c.roofline = 10;
  c.computing = 4;
  c.bytes = 2 * kCache;
  c.best = c.typical = 10;
  return c;
}

double sum(const Gap& g) {
  return std::accumulate(g.causes.begin(), g.causes.end(), 0.0,
                         [](double all, const Cause& c) { return all + c.ms; });
}

// The planted evidence gives one cause alone.
void expect_only(const Gap& g, CauseKind kind, double ms) {
  ASSERT_EQ(g.causes.size(), 1u) << str(g.causes.front()) << (g.causes.size() > 1 ? str(g.causes[1]) : "");
  EXPECT_EQ(name_of(g.causes.front().kind), name_of(kind));
  EXPECT_NEAR(g.causes.front().ms, ms, 1e-12);
  EXPECT_FALSE(g.causes.front().evidence.empty());
  EXPECT_NEAR(g.ms(), ms, 1e-12);
}

Gap explain_one(const CallEvidence& c, const RunFacts& f = facts()) { return explain({&c, 1}, f); }

TEST(Gap, WithoutEvidenceThereIsNoCause) { EXPECT_TRUE(explain_one(exact()).causes.empty()); }

TEST(Gap, TimeBeforeACallIsDispatch) {
  CallEvidence c = exact();
  c.before = 0.5;
  expect_only(explain_one(c), CauseKind::dispatch, 0.5);
  EXPECT_NE(explain_one(c).causes[0].evidence.find("500 us before each of 1 call"), std::string::npos)
      << explain_one(c).causes[0].evidence;
  RunFacts gpu = facts();
  gpu.kernels = true;
  EXPECT_NE(explain_one(c, gpu).causes[0].evidence.find("no kernel ran"), std::string::npos);
}

TEST(Gap, WorkDoneAgainIsNotInTheTheory) {
  CallEvidence c = exact();
  c.recomputed = true;
  const Gap g = explain_one(c);
  EXPECT_EQ(g.roofline, 0);
  expect_only(g, CauseKind::recompute, 10);
}

TEST(Gap, ACopyIsNotInTheTheory) {
  CallEvidence c = exact();
  c.copy = true;
  expect_only(explain_one(c), CauseKind::copies, 10);
  c.recomputed = true;  // of a copy done again the reason is that it is done again
  expect_only(explain_one(c), CauseKind::recompute, 10);
}

TEST(Gap, SpreadOverStepsIsContention) {
  CallEvidence c = exact();
  c.typical = 13;
  RunFacts f = facts();
  f.load = 3.5;
  const Gap g = explain_one(c, f);
  expect_only(g, CauseKind::contention, 3);
  EXPECT_NE(g.causes[0].evidence.find("load average 3.5 on 2 processors"), std::string::npos)
      << g.causes[0].evidence;
}

TEST(Gap, FillingTilesIsTakenBeforeTheCalibratedRate) {
  CallEvidence c = exact();
  c.best = c.typical = 15;
  c.padding = 1;
  c.predicted = 14;
  const Gap g = explain_one(c);
  EXPECT_NEAR(g.of(CauseKind::tiles), 1, 1e-12);
  EXPECT_NEAR(g.of(CauseKind::shape_rate), 3, 1e-12);
  EXPECT_NEAR(g.of(CauseKind::unexplained), 1, 1e-12);
  c.padding = 0;
  EXPECT_EQ(explain_one(c).of(CauseKind::tiles), 0);
  EXPECT_NEAR(explain_one(c).of(CauseKind::shape_rate), 4, 1e-12);
}

TEST(Gap, ASmallCallTakesWhatTheSmallestTakes) {
  CallEvidence c = exact();
  c.roofline = c.computing = 1e-4;
  c.best = c.typical = 5e-3;
  RunFacts f = facts();
  f.fixed_ms = 5e-3;
  expect_only(explain_one(c, f), CauseKind::small_call, 4.9e-3);
  EXPECT_EQ(explain_one(c).of(CauseKind::small_call), 0);
  f.fixed_ms = 5e-5;  // below its roofline: then it is not small
  EXPECT_EQ(explain_one(c, f).of(CauseKind::small_call), 0);
}

TEST(Gap, ACalibrationExplainsNoMoreThanThereIs) {
  CallEvidence c = exact();
  c.best = c.typical = 12;
  c.predicted = 30;
  expect_only(explain_one(c), CauseKind::shape_rate, 2);
  c.predicted = 5;
  expect_only(explain_one(c), CauseKind::unexplained, 2);
  c.predicted = {};
  expect_only(explain_one(c), CauseKind::unexplained, 2);
  EXPECT_NE(explain_one(c).causes[0].evidence.find("no calibration"), std::string::npos);
}

TEST(Gap, FasterThanTheRooflineIsTheCacheWhereTheBytesFit) {
  CallEvidence c = exact();
  c.best = c.typical = 6;
  expect_only(explain_one(c), CauseKind::unexplained, -4);  // twice the cache
  c.bytes = kCache / 2;
  expect_only(explain_one(c), CauseKind::cache, -4);
  c.best = c.typical = 3;  // the operations alone are to take 4
  const Gap g = explain_one(c);
  EXPECT_NEAR(g.of(CauseKind::cache), -6, 1e-12);
  EXPECT_NEAR(g.of(CauseKind::unexplained), -1, 1e-12);
}

TEST(Gap, CausesOfCallsAddUpToThoseOfTheStepAndToTheGap) {
  std::vector<CallEvidence> calls;
  double by_kind[kCauseKinds] = {}, gaps = 0;
  for (int i = 0; i < 50; ++i) {
    CallEvidence c = exact();
    c.roofline = 0.1 + 0.37 * (i % 7);
    c.computing = c.roofline * (i % 3) / 3;
    c.best = c.roofline * (0.5 + 0.11 * (i % 13));
    c.typical = c.best * 1.07;
    c.before = 0.003 * (i % 5);
    c.padding = i % 4 == 0 ? 0.02 : 0;
    c.bytes = i % 2 == 0 ? kCache / 2 : kCache * 2;
    c.recomputed = i % 11 == 0;
    c.copy = i % 5 == 0;
    if (i % 3 != 0) c.predicted = c.roofline * 1.3;
    calls.push_back(c);
    const Gap g = explain_one(c);
    EXPECT_NEAR(sum(g), g.ms(), 1e-12);
    gaps += g.ms();
    for (int k = 0; k < kCauseKinds; ++k) by_kind[k] += g.of(static_cast<CauseKind>(k));
  }
  const Gap whole = explain(calls, facts());
  EXPECT_NEAR(sum(whole), whole.ms(), 1e-10);
  EXPECT_NEAR(whole.ms(), gaps, 1e-10);
  for (int k = 0; k < kCauseKinds; ++k)
    EXPECT_NEAR(whole.of(static_cast<CauseKind>(k)), by_kind[k], 1e-10) << name_of(static_cast<CauseKind>(k));
}

TEST(Gap, WhatIsOutsideOfCallsIsDispatchAndWhatMediansDoNotAddUpToContention) {
  const Gap g = explain({}, facts(), {.outside = 2, .residual = -0.5});
  EXPECT_NEAR(g.measured, 1.5, 1e-12);
  EXPECT_NEAR(g.of(CauseKind::dispatch), 2, 1e-12);
  EXPECT_NEAR(g.of(CauseKind::contention), -0.5, 1e-12);
  EXPECT_NEAR(sum(g), g.ms(), 1e-12);
  EXPECT_NE(g.causes[1].evidence.find("shorter"), std::string::npos) << g.causes[1].evidence;
}

}  // namespace
}  // namespace kiln
