// The pages of `kiln precision`: what they say comes from the rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kiln/precision_pages.h"

namespace kiln::cli {
namespace {

using nlohmann::json;

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
  return widest;
}

TEST(PrecisionAccumulatePage, HasTheRowsFiguresAndFits) {
  AccumulateReport report = accumulate_study({});
  const std::string text = accumulate_text(report);
  for (const char* sum : {"10.0001335", "9.95312500", "10.0021362", "4.00000000", "10.0097656"})
    EXPECT_NE(text.find(sum), std::string::npos) << sum;
  EXPECT_NE(text.find("stops at 4\n"), std::string::npos);
  EXPECT_LE(widest_line(text), 100u);
  for (AccumulateRequest other : {AccumulateRequest{.count = 100000, .value = 1e-7, .runs = 2},
                                  AccumulateRequest{.count = 100000, .value = 65504, .runs = 2}})
    EXPECT_LE(widest_line(accumulate_text(accumulate_study(other))), 100u) << other.value;

  report.rows[4].stalls_at = 2.5;
  EXPECT_NE(accumulate_text(report).find("stops at 2.5\n"), std::string::npos);
}

TEST(PrecisionAccumulatePage, JsonHasEveryRow) {
  const AccumulateReport report = accumulate_study({.seed = 5});
  const json page = json::parse(accumulate_json(report));
  EXPECT_EQ(page.at("study"), "accumulate");
  EXPECT_EQ(page.at("count"), 1000);
  EXPECT_EQ(page.at("seed"), 5);
  ASSERT_EQ(page.at("rows").size(), 10u);
  const json& row = page["rows"][1];
  EXPECT_EQ(row.at("accumulator"), "fp16");
  EXPECT_EQ(row.at("added"), "fp16");
  EXPECT_EQ(row.at("method"), "plain");
  EXPECT_EQ(row.at("sum"), 9.953125);
  EXPECT_EQ(row.at("predicted"), 9.953125);
  EXPECT_EQ(row.at("limit"), "spacing");
  EXPECT_TRUE(row.at("stalls_at").is_null());
  EXPECT_EQ(page["rows"][4].at("stalls_at"), 4);
  EXPECT_GT(page["rows"][9].at("spread").get<double>(), 0);
}

}  // namespace
}  // namespace kiln::cli
