#include "studies/diff/diff.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "studies/diff/render.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

Json op(const char* name, const char* variant, const char* pass, double roofline, double dispatch,
        double spread) {
  const double ms = roofline + dispatch;
  Json samples = Json::array();
  for (int i = 0; i < 8; ++i) samples.append(ms + spread * (i - 3.5));
  return {{"op", name},
          {"variant", variant},
          {"pass", pass},
          {"roofline_ms", roofline},
          {"measured_ms", ms},
          {"causes", Json::array({{{"name", "dispatch"}, {"ms", dispatch}, {"evidence", "planted"}}})},
          {"samples_ms", samples}};
}

Json row_of(const char* preset, const Json& by_op, const Json& tags, double peak) {
  double ms = 0;
  for (const Json& o : by_op) ms += o.at("measured_ms").get<double>();
  Json samples = Json::array();
  for (int i = 0; i < 8; ++i) samples.append(ms + 0.001 * (i - 3.5));
  return {{"schema", 2},    {"command", "compare"}, {"size", "nano"},      {"preset", preset},
          {"status", "ok"}, {"gate", "passed"},     {"p50_ms", ms},        {"raw_samples", samples},
          {"by_op", by_op}, {"peak_bytes", peak},   {"peak_by_tag", tags}, {"build_id", "abc"}};
}

Json side_a() {
  return row_of(
      "baseline",
      Json::array({op("linear", "packed", "forward", 5, 1, 0.001),
                   op("rms_norm", "naive", "forward", 3, 0.5, 0.001),
                   op("silu", "naive", "forward", 2, 0.25, 0.001), op("add", "naive", "forward", 1, 0, 0.5)}),
      {{"param", 100}, {"activation", 900}}, 950);
}

Json side_b() {
  return row_of("optimized",
                Json::array({op("linear", "packed", "forward", 4, 0.5, 0.001),
                             op("linear", "small_m", "forward", 0.5, 0.25, 0.001),
                             op("rms_norm", "fused", "forward", 1, 0.5, 0.001),
                             op("swiglu", "fused", "forward", 1.5, 0.125, 0.001),
                             op("add", "naive", "forward", 1.01, 0, 0.5)}),
                {{"param", 100}, {"activation", 500}, {"workspace", 50}}, 640);
}

const OpChange& find(const StepDiff& d, const std::string& op) {
  for (const OpChange& c : d.ops)
    if (c.op == op) return c;
  throw std::runtime_error("no " + op);
}

void expect_sums(const StepDiff& d) {
  double ops = 0, causes = 0, bytes = 0;
  for (const OpChange& c : d.ops) {
    ops += c.ms();
    double own = 0;
    for (const CauseChange& cause : c.causes) own += cause.ms;
    EXPECT_NEAR(own, c.ms(), 1e-12) << c.op;
  }
  for (const CauseChange& c : d.causes) causes += c.ms;
  for (const TagChange& t : d.tags) bytes += t.bytes();
  EXPECT_NEAR(ops, d.ms(), 1e-12);
  EXPECT_NEAR(causes, d.ms(), 1e-12);
  EXPECT_NEAR(bytes, d.peak_b - d.peak_a, 1e-9);
}

TEST(Diff, LinesCausesAndTagsSumToTheDifference) {
  const StepDiff d = diff_rows(side_a(), side_b(), false);
  expect_sums(d);
  EXPECT_NEAR(d.a, 12.75, 1e-12);
  EXPECT_NEAR(d.ms(), -3.365, 1e-12);
  EXPECT_EQ(d.differs_a, "preset=baseline");
  EXPECT_EQ(d.differs_b, "preset=optimized");
  EXPECT_TRUE(d.significance.significant());
}

TEST(Diff, OpsAreMatchedByOpAndPassWithBothVariants) {
  const StepDiff d = diff_rows(side_a(), side_b(), false);
  EXPECT_EQ(find(d, "rms_norm").variant_a, "naive");
  EXPECT_EQ(find(d, "rms_norm").variant_b, "fused");
  EXPECT_EQ(find(d, "linear").variant_b, "packed+small_m");
  EXPECT_NEAR(find(d, "linear").ms(), -0.75, 1e-12);
  EXPECT_FALSE(find(d, "silu").b);
  EXPECT_FALSE(find(d, "swiglu").a);
  EXPECT_NEAR(find(d, "silu").ms(), -2.25, 1e-12);
}

TEST(Diff, WhatLiesWithinTheSpreadIsNoise) {
  const StepDiff d = diff_rows(side_a(), side_b(), false);
  EXPECT_TRUE(find(d, "add").noise());
  EXPECT_FALSE(find(d, "rms_norm").noise());
  EXPECT_FALSE(find(d, "silu").noise());
  const std::string page = written(diff_page(d), PageFormat::text);
  EXPECT_NE(page.find("+0.010 noise"), std::string::npos) << page;
  EXPECT_NE(page.find("only in A"), std::string::npos) << page;
}

TEST(Diff, ARowAgainstItselfDiffersInNothing) {
  const StepDiff d = diff_rows(side_a(), side_a(), true);
  EXPECT_EQ(d.ms(), 0);
  EXPECT_TRUE(d.causes.empty());
  EXPECT_EQ(d.differs_a, "");
  EXPECT_FALSE(d.significance.significant());
  expect_sums(d);
}

TEST(Diff, RowsOfMeasureHaveNoCausesAndThoseWithoutTimesOfOpsOnlyTheStep) {
  Json a = side_a(), b = side_b();
  for (Json* row : {&a, &b}) (*row)["command"] = "measure";
  Json ops = Json::array();
  for (Json o : a.at("by_op")) {
    o.erase("roofline_ms");
    o.erase("causes");
    ops.append(o);
  }
  a["by_op"] = ops;
  a["p50_ms"] = a.at("p50_ms").get<double>() + 0.5;  // more than the medians of its parts
  const StepDiff d = diff_rows(a, b, false);
  expect_sums(d);
  EXPECT_NEAR(d.a, 13.25, 1e-12);
  b["by_op"] = Json::array({{{"op", "linear"}, {"pass", "forward"}, {"measured_ms", nullptr}}});
  const StepDiff whole = diff_rows(a, b, false);
  expect_sums(whole);
  ASSERT_EQ(whole.ops.size(), 1u);
  EXPECT_EQ(whole.ops[0].op, "all ops");
}

TEST(Diff, ARowThatPassedNoGateIsRefused) {
  Json a = side_a();
  a["gate"] = "not-verified";
  EXPECT_THROW(diff_rows(a, side_b(), false), Error);
  a = side_a();
  a["command"] = "bench op add";
  EXPECT_THROW(diff_rows(a, side_b(), false), Error);
}

TEST(Diff, AStoredRowIsNamedByItsFileAndPlace) {
  const TempFolder folder;
  Json failed = side_a();
  failed["gate"] = "not-verified";
  std::ofstream(folder.path() + "/results.jsonl") << side_a().dump() << "\n"
                                                  << side_b().dump() << "\n"
                                                  << failed.dump() << "\n";
  const auto preset = [&](const std::string& text) {
    return stored_row(text, folder.path()).at("preset").get<std::string>();
  };
  EXPECT_EQ(preset("#1"), "baseline");
  EXPECT_EQ(preset(folder.path() + "/results.jsonl#2"), "optimized");
  EXPECT_EQ(preset(folder.path()), "optimized");  // the newest that counts
  EXPECT_EQ(preset(folder.path() + "#-3"), "baseline");
  EXPECT_THROW(preset("#4"), Error);
  EXPECT_THROW(preset("#0"), Error);
  EXPECT_THROW(preset("#x"), Error);
  EXPECT_THROW(preset(folder.path() + "/none.jsonl"), Error);
}

}  // namespace
}  // namespace kiln
