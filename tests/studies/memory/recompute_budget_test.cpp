// Budgets in the studies: the policy that stands in their place, and the curve of memory against time.
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/size_registry.h"
#include "studies/memory/memory_study.h"
#include "studies/memory/render.h"
#include "studies/step/step.h"
#include "support/said.h"

namespace kiln {
namespace {

StepSpec spec() {
  StepSpec s;
  s.model = config_of(find_model_size("nano"));
  s.model.layers = 6;
  s.model.vocab = 300;
  s.step.batch = 2;
  s.step.context = 64;
  s.step.graph = false;
  return s;
}

RankOptions two_threads() {
  RankOptions rank;
  rank.threads = 2;
  return rank;
}

TEST(RecomputeBudget, ItsPolicyIsWhatTheStepThenTakes) {
  const StepClock clock = clock_of("", Device::cpu(), 2, DType::f32);
  const std::size_t most = plan_step(spec(), two_threads()).memory.peak_total;
  for (const std::size_t budget : {most, most - most / 10, most - most / 4}) {
    StepSpec s = spec();
    s.model.recompute = Recompute::within(static_cast<int64_t>(budget));
    const std::string line = resolve_policy(s, two_threads(), clock);
    EXPECT_NE(line.find(name_of(s.model.recompute)), std::string::npos) << line;
    EXPECT_NE(s.model.recompute.kind, Recompute::Kind::budget);
    const std::size_t predicted = plan_step(s, two_threads()).memory.peak_total;
    EXPECT_LE(predicted, budget);
    EXPECT_EQ(trace_step(s, two_threads()).stats.peak_total, predicted);
    EXPECT_EQ(resolve_policy(s, two_threads(), clock), "") << "there is nothing left to choose";
  }
  StepSpec s = spec();
  s.model.recompute = Recompute::within(1);
  EXPECT_THROW(resolve_policy(s, two_threads(), clock), Error);
  s.mode = StepMode::forward;
  EXPECT_NE(resolve_policy(s, two_threads(), clock), "");
  EXPECT_EQ(s.model.recompute, Recompute::none);
}

TEST(RecomputeBudget, TheSweepHasTheFastestPoliciesBetweenNoneAndNested) {
  const StepClock clock = clock_of("", Device::cpu(), 2, DType::f32);
  RecomputeSweepRequest request;
  request.spec = spec();
  request.rank = two_threads();
  request.ks = {1, 2};
  request.clock = &clock;
  RecomputeReport report;
  report.spec = request.spec;
  report.size = "nano";
  report.clock = clock.kind();
  report.sweep = recompute_sweep(request);
  const std::vector<SweepPoint>& points = report.sweep.points;
  const SweepPoint &none = points.front(), &nested = points.back();
  int budgets = 0;
  for (const SweepPoint& p : points) {
    EXPECT_GT(p.seconds, 0) << name_of(p.recompute);
    if (p.budget == 0) continue;
    ++budgets;
    EXPECT_EQ(p.recompute.kind, Recompute::Kind::plan);
    EXPECT_LE(p.predicted.peak_total, p.budget);
    EXPECT_GE(p.budget, nested.predicted.peak_total);
    EXPECT_GE(p.seconds, none.seconds);
    for (const SweepPoint& other : points) {
      if (other.predicted.peak_total > p.budget) continue;
      EXPECT_LE(p.seconds, other.seconds) << name_of(other.recompute);
    }
  }
  EXPECT_GE(budgets, 2);
  const std::string svg = recompute_charts(report).front().svg;
  EXPECT_NE(svg.find("the best plan of each budget"), std::string::npos);
  const StudyPage page = recompute_page(report);
  EXPECT_EQ(page.json.at("clock"), clock.kind());
  EXPECT_EQ(page.json.at("points").back().at("recompute"), "nested");
}

}  // namespace
}  // namespace kiln
