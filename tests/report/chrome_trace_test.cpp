// The fields that Perfetto and chrome://tracing read, and that spans of a lane are nested or disjoint.
#include "report/export/chrome_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/json.h"
#include "report/export/step_timeline.h"

namespace kiln {
namespace {

// What the format asks of a file. Returns the names of the lanes.
std::set<std::string> check_schema(const Json& page) {
  std::set<std::string> lanes;
  EXPECT_TRUE(page.at("traceEvents").is_array());
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> spans;
  for (const Json& e : page.at("traceEvents")) {
    const std::string ph = e.at("ph").text();
    EXPECT_TRUE(e.at("pid").is_number_integer());
    EXPECT_TRUE(e.at("tid").is_number_integer());
    EXPECT_TRUE(e.at("name").is_string());
    EXPECT_TRUE(e.at("ts").is_number());
    EXPECT_GE(e.at("ts").get<double>(), 0);
    if (ph == "X") {
      EXPECT_GE(e.at("dur").get<double>(), 0);
      spans[{e["pid"].get<int>(), e["tid"].get<int>()}].push_back(
          {e["ts"].get<double>(), e["ts"].get<double>() + e["dur"].get<double>()});
    } else if (ph == "C") {
      EXPECT_TRUE(e.at("args").at("bytes").is_number());
    } else if (ph == "M") {
      if (e["name"] == "thread_name") lanes.insert(e.at("args").at("name").text());
    } else {
      ADD_FAILURE() << "an event of kind " << ph;
    }
  }
  for (const auto& [lane, list] : spans) {
    for (const auto& a : list) {
      for (const auto& b : list) {
        const bool apart = a.second <= b.first + 1e-6 || b.second <= a.first + 1e-6;
        const bool inside = (a.first >= b.first - 1e-6 && a.second <= b.second + 1e-6) ||
                            (b.first >= a.first - 1e-6 && b.second <= a.second + 1e-6);
        EXPECT_TRUE(apart || inside) << "lane " << lane.second << ": " << a.first << " " << b.first;
      }
    }
  }
  return lanes;
}

TEST(ChromeTrace, EventsHaveTheFieldsThatAreRead) {
  Timeline trace("a \"step\"", 3);
  const int first = trace.add_lane("CPU"), second = trace.add_lane("GPU");
  trace.add_span(first, "outer", "range", 1e6, 10);
  trace.add_span(first, "inner", "op", 1e6 + 2, 3, {{"flops", 12}});
  trace.add_span(second, "k", "matmul", 1e6 + 4, 2.5);
  trace.add_counter("memory", 1e6 + 1, 4096);
  const Json page = Json::parse(chrome_trace(trace));
  const std::set<std::string> lanes = check_schema(page);
  EXPECT_EQ(lanes, (std::set<std::string>{"CPU", "GPU"}));
  int found = 0;
  for (const Json& e : page["traceEvents"]) {
    EXPECT_EQ(e["pid"], 3);
    if (e["name"] == "inner") {
      ++found;
      EXPECT_EQ(e["ts"], 2);
      EXPECT_EQ(e["dur"], 3);
      EXPECT_EQ(e["args"]["flops"], 12);
    }
    EXPECT_TRUE(e["ph"] != "C" || e["ts"] == 1);
    EXPECT_TRUE(e["name"] != "process_name" || e["args"]["name"] == "a \"step\"");
  }
  EXPECT_EQ(found, 1);
}

TEST(ChromeTrace, WhatOverlapsGoesToALaneOfItsOwn) {
  Timeline trace("t");
  const int gpu = trace.add_lane("GPU");
  trace.add_span(gpu, "a", "", 0, 10);
  trace.add_span(gpu, "b", "", 5, 10);
  trace.add_span(gpu, "c", "", 20, 1);
  const Json page = Json::parse(chrome_trace(trace));
  EXPECT_EQ(check_schema(page), (std::set<std::string>{"GPU", "GPU (beside)"}));
}

TEST(ChromeTrace, AnEmptyOneIsStillAFile) { check_schema(Json::parse(chrome_trace(Timeline("t")))); }

Trace step_on_cpu() {
  Trace t;
  t.begin_us = 100;
  t.end_us = 1000;
  t.ops = {{"linear", "packed", "layers.0.attention", StepPhase::forward, false, false, {8, 4}, 110, 200},
           {"attention", "flash", "layers.0.attention", StepPhase::forward, false, false, {}, 210, 300},
           {"swiglu", "fused", "layers.0.mlp", StepPhase::forward, false, false, {}, 310, 400},
           {"swiglu", "fused", "layers.0.mlp", StepPhase::backward, true, false, {}, 410, 500},
           {"adamw", "fused", "update", StepPhase::update, false, false, {}, 600, 900}};
  for (std::size_t i = 0; i < t.ops.size(); ++i)
    t.spans.push_back({TraceLane::cpu, KernelGroup::matmul, t.ops[i].op, static_cast<int>(i),
                       t.ops[i].begin_us, t.ops[i].end_us});
  t.memory = {{100, 10}, {150, 30}, {150, 40}, {700, 20}};
  return t;
}

int count(const Json& page, const char* name) {
  int found = 0;
  for (const Json& e : page["traceEvents"]) found += e["name"] == name ? 1 : 0;
  return found;
}

// A range that holds one op covers the same time, and is above it.
TEST(StepTimeline, RangesStandAboveTheirOps) {
  const Json page = Json::parse(chrome_trace(step_timeline({step_on_cpu()}, "kiln tiny")));
  std::vector<std::string> order;
  for (const Json& e : page["traceEvents"]) {
    if (e["ph"] == "X") order.push_back(e["name"].text());
  }
  const std::vector<std::string> begin = {"step 1",        "forward",         "layers.0", "attention",
                                          "linear packed", "attention flash", "mlp",      "swiglu fused"};
  ASSERT_GE(order.size(), begin.size());
  EXPECT_EQ(std::vector<std::string>(order.begin(), order.begin() + 8), begin);
}

TEST(StepTimeline, HasAllLanesRangesAndTheMemory) {
  const Json page = Json::parse(chrome_trace(step_timeline({step_on_cpu()}, "kiln tiny")));
  const std::set<std::string> lanes = check_schema(page);
  for (const char* lane : {"CPU", "GPU", "copy", "communication"}) EXPECT_TRUE(lanes.count(lane)) << lane;
  for (const char* range : {"step 1", "forward", "backward", "optimizer", "linear packed"})
    EXPECT_EQ(count(page, range), 1) << range;
  EXPECT_EQ(count(page, "layers.0"), 2);  // forward and backward
  EXPECT_EQ(count(page, "attention"), 1);
  EXPECT_EQ(count(page, "memory"), 3);  // of two at one moment the later
}

TEST(StepTimeline, KernelsLieUnderTheRangesOfTheirOps) {
  Trace t = step_on_cpu();
  for (TraceSpan& s : t.spans) {
    s.lane = TraceLane::gpu;
    s.begin_us += 2000;
    s.end_us += 2000;
  }
  t.spans.push_back({TraceLane::copy, KernelGroup::copy, "memcpy", -1, 2100, 2900});
  t.spans.push_back({TraceLane::gpu, KernelGroup::elementwise, "beside", -1, 2650, 3100});
  t.calls = {{"cudaLaunchKernelExC", 120, 130}};
  t.begin_us += 2000;
  t.end_us += 2000;
  Json page = Json::parse(chrome_trace(step_timeline({t, t}, "kiln")));
  check_schema(page);
  EXPECT_EQ(count(page, "forward"), 4);  // of the host and of the GPU, twice
  EXPECT_EQ(count(page, "memcpy"), 2);
  EXPECT_EQ(count(page, "cudaLaunchKernelExC"), 2);
  t.replayed = true;
  page = Json::parse(chrome_trace(step_timeline({t}, "kiln")));
  check_schema(page);
  EXPECT_EQ(count(page, "forward"), 1);  // the host called no op
}

}  // namespace
}  // namespace kiln
