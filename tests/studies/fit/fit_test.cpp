// What fits is what a run then takes, and one more of anything does not.
#include "studies/fit/fit.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/units.h"
#include "studies/step/step.h"
#include "support/said.h"

namespace kiln {
namespace {

FitRequest nano() {
  FitRequest r;
  r.model = NamedModel(find_model_size("nano"));
  r.batch = 4;
  r.context = 64;
  r.precision = Precision::fp32;
  r.threads = 2;
  r.memory = std::size_t{64} << 20;
  r.device = Device::cpu();
  return r;
}

const auto kQuiet = [](const std::string&) {};

std::size_t peak_of(const FitRequest& r, StepSpec spec) {
  RankOptions rank;
  rank.device = r.device;
  rank.threads = r.threads;
  return plan_step(spec, rank).memory.peak_total;
}

TEST(Fit, OneMoreDoesNotFit) {
  const FitRequest r = nano();
  const FitReport report = fit(r, kQuiet);
  ASSERT_GE(report.rows.size(), 5u);
  for (const FitRow& row : report.rows) {
    EXPECT_LE(row.point.peak, r.memory) << name_of(row.question);
    EXPECT_EQ(peak_of(r, row.spec), row.point.peak) << name_of(row.question);
    EXPECT_GT(row.point.seconds, 0);
    StepSpec more = row.spec;
    if (row.question == FitQuestion::batch) ++more.step.batch;
    if (row.question == FitQuestion::context) more.step.context += 64;
    const bool grew = more.step.batch != row.spec.step.batch || more.step.context != row.spec.step.context;
    if (!grew || !row.all_kept) continue;
    EXPECT_GT(peak_of(r, more), r.memory) << name_of(row.question);
  }
  const Json page = fit_page(report, false).json;
  EXPECT_EQ(page.at("command"), "fit");
  EXPECT_EQ(page.at("memory_bytes"), r.memory);
  EXPECT_EQ(page.at("rows").at(0).at("question"), "as asked");
  EXPECT_TRUE(page.at("rows").at(0).at("measured_peak_bytes").is_null());
}

TEST(Fit, TheAnswerIsConfirmedToTheByte) {
  FitRequest r = nano();
  const std::size_t all = fit(r, kQuiet).rows.front().point.peak;
  r.memory = all - all / 10;  // so that something is recomputed
  r.confirm = true;
  const FitReport report = fit(r, kQuiet);
  const FitRow& row = report.rows.front();
  EXPECT_NE(row.point.recompute, Recompute::none);
  ASSERT_TRUE(row.measured);
  EXPECT_EQ(row.measured->peak_total, row.point.peak);
  r.device = Device::meta();
  EXPECT_THROW(fit(r, kQuiet), Error);
}

TEST(Fit, AModelThatCannotFitNamesTheLeastAndTheKnobs) {
  FitRequest r = nano();
  r.context = 256;
  r.memory = std::size_t{1} << 20;
  try {
    fit(r, kQuiet);
    ADD_FAILURE();
  } catch (const Error& e) {
    const std::string what = e.what(), hint = e.hint();
    EXPECT_NE(what.find("nano does not fit into 1.00 MiB"), std::string::npos) << what;
    EXPECT_NE(what.find("--recompute"), std::string::npos) << what;
    EXPECT_NE(hint.find("--ctx 128"), std::string::npos) << hint;
    EXPECT_NE(hint.find("--precision bf16"), std::string::npos) << hint;
  }
}

}  // namespace
}  // namespace kiln
