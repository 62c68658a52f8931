// Charts: what they show comes from their points and rows.
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "report/charts/grouped_bars.h"
#include "report/charts/line_chart.h"
#include "studies/step/step_charts.h"
#include "support/has.h"

namespace kiln {
namespace {

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

LineChart two_lines() {
  return {.title = "a <b> & c",
          .below_title = "held",
          .x_label = "x",
          .y_label = "ms",
          .x_ticks = {{10, "ten"}, {100, "hundred"}, {1e6, "far away"}},
          .lines = {{"one", 0, LineStyle::measured, {{10, 1}, {100, 10}}},
                    {"", 0, LineStyle::floor, {{10, 0.5}, {100, 5}}},
                    {"two", 1, LineStyle::measured, {{10, 2}, {100, 10}}}}};
}

// The y of every circle, in order.
std::vector<double> circles(const std::string& svg) {
  std::vector<double> ys;
  for (std::size_t at = svg.find("cy=\""); at != std::string::npos; at = svg.find("cy=\"", at + 1))
    ys.push_back(std::stod(svg.substr(at + 4)));
  return ys;
}

TEST(LineChart, PointsAreWhereTheirLogarithmsAre) {
  const std::string svg = line_chart_svg(two_lines());
  EXPECT_TRUE(has(svg, "a &lt;b&gt; &amp; c"));
  for (const char* part : {">ten<", ">hundred<", ">one<", ">two<", ">measured<", ">floor<", ">ms<"})
    EXPECT_TRUE(has(svg, part)) << part;
  EXPECT_FALSE(has(svg, ">predicted<")) << "there is no such line";
  EXPECT_FALSE(has(svg, "far away")) << "outside of the points";
  const std::vector<double> ys = circles(svg);
  ASSERT_EQ(ys.size(), 4U) << "measured points alone are dots";
  EXPECT_NEAR(ys[1], ys[3], 0.1);
  EXPECT_NEAR((ys[0] - ys[2]) / (ys[0] - ys[1]), std::log10(2.0), 0.01);
}

TEST(LineChart, LabelsDoNotLieOnEachOther) {
  const std::string svg = line_chart_svg(two_lines());  // both lines end in one point
  const auto y_of = [&](std::string_view name) {
    const std::size_t end = svg.find(name), from = svg.rfind("y=\"", end);
    return std::stod(svg.substr(from + 3));
  };
  EXPECT_GE(std::abs(y_of(">one<") - y_of(">two<")), 13);
}

TEST(LineChart, WhatHasNoLogarithmIsLeftOut) {
  LineChart chart = two_lines();
  chart.lines[0].points.push_back({1000, 0});
  chart.lines[0].points.push_back({-1, 5});
  EXPECT_EQ(circles(line_chart_svg(chart)).size(), 4U);
  chart.lines.clear();
  EXPECT_TRUE(has(line_chart_svg(chart), "</svg>"));
  chart.lines = {{"dot", 0, LineStyle::measured, {{5, 5}}}};
  EXPECT_FALSE(has(line_chart_svg(chart), "nan"));
}

TEST(GroupedBars, HeightsFollowTheValues) {
  GroupedBars chart{.title = "t",
                    .below_title = "",
                    .y_label = "y",
                    .unit = "x",
                    .reference = 1,
                    .series = {"a", "b"},
                    .groups = {{"g", {{2, 0}, {4, 3}}}, {"h", {{0, 0}, {1, 0}}}}};
  const std::string svg = grouped_bars_svg(chart);
  for (const char* part : {">2.00x<", ">4.00x<", ">1.00x<", ">g<", ">h<", ">predicted<"})
    EXPECT_TRUE(has(svg, part)) << part;
  const auto height = [](const std::string& text, std::string_view label) {
    const std::size_t end = text.find(label), from = text.rfind("height=\"", end);
    return std::stod(text.substr(from + 8));
  };
  EXPECT_NEAR(height(svg, ">4.00x<"), 2 * height(svg, ">2.00x<"), 0.2);
  chart.groups[0].bars[1].marker = 0;
  EXPECT_FALSE(has(grouped_bars_svg(chart), ">predicted<"));
  chart.groups.clear();
  EXPECT_TRUE(has(grouped_bars_svg(chart), "</svg>"));
}

Json row(const char* size, double params, const char* dtype, int ctx, double ms) {
  Json samples = Json::array();
  for (int i = 0; i < 6; ++i) samples.push_back(ms * (1 + 0.001 * i));
  return {{"gate", "passed"},     {"size", size},          {"params", params},
          {"mode", "full"},       {"dtype", dtype},        {"batch", 4},
          {"ctx", ctx},           {"preset", "baseline"},  {"p50_ms", ms},
          {"forward_ms", ms / 3}, {"backward_ms", ms / 2}, {"predicted_ms", ms / 2},
          {"floor_ms", ms / 4},   {"raw_samples", samples}};
}

TEST(StepCharts, OneForEachThingThatRowsDifferIn) {
  std::vector<Json> rows;
  for (const int ctx : {128, 256, 512}) {
    rows.push_back(row("small", 1e8, "fp32", ctx, ctx));
    rows.push_back(row("medium", 4e8, "fp32", ctx, 3.0 * ctx));
  }
  std::vector<NamedChart> charts = step_charts(rows);
  ASSERT_EQ(charts.size(), 2U);
  EXPECT_EQ(charts[0].name, "time-over-ctx");
  EXPECT_TRUE(has(charts[0].svg, ">small: x^1.00<"));
  EXPECT_TRUE(has(charts[0].svg, ">mode full, dtype fp32, batch 4, preset baseline<")) << "said once";
  EXPECT_EQ(count(charts[0].svg, "<circle"), 6U);
  EXPECT_EQ(charts[1].name, "time-over-params");
  EXPECT_TRUE(has(charts[1].svg, ">100 M<"));

  rows.push_back(row("small", 1e8, "bf16", 128, 32));
  charts = step_charts(rows);
  ASSERT_EQ(charts.size(), 3U);
  EXPECT_EQ(charts[2].name, "speedup-dtype");
  EXPECT_TRUE(has(charts[2].svg, ">4.00x<"));
  rows.back() = row("small", 1e8, "bf16", 128, 64);
  EXPECT_FALSE(has(step_charts(rows).at(2).svg, ">4.00x<")) << "it follows the rows";
  rows[0]["p50_ms"] = 500;
  EXPECT_FALSE(has(step_charts(rows).at(0).svg, ">small: x^1.00<"));
  EXPECT_TRUE(step_charts(std::vector<Json>{rows[0]}).empty());
}

}  // namespace
}  // namespace kiln
