#include "rows/metrics_line.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"

namespace kiln {
namespace {

TEST(MetricsLine, ReadsWhatARunWrites) {
  const auto m = read_metrics_line(Json({{"step", 12},
                                         {"loss", 3.25},
                                         {"lr", 1e-3},
                                         {"skipped", false},
                                         {"seconds", 0.0125},
                                         {"tokens", 1024},
                                         {"at", 1763596800.5},
                                         {"peak_bytes", 123456789},
                                         {"something_new", 7}})
                                       .dump());
  ASSERT_TRUE(m);
  EXPECT_TRUE(m->is_step);
  EXPECT_EQ(m->step, 12);
  EXPECT_EQ(m->loss, 3.25);
  EXPECT_EQ(m->at, 1763596800.5);
  EXPECT_EQ(m->peak_bytes, 123456789);
  EXPECT_TRUE(std::isnan(m->stall_ms));
  EXPECT_FALSE(m->skipped);
}

TEST(MetricsLine, ALossThatIsNotFiniteIsNone) {
  const auto m = read_metrics_line(R"({"step":3,"loss":null,"skipped":true})");
  ASSERT_TRUE(m);
  EXPECT_TRUE(m->is_step && m->skipped && std::isnan(m->loss));
}

TEST(MetricsLine, AValidationIsNoStep) {
  const auto m = read_metrics_line(R"({ "step" : 5 , "validation_loss" : 2.5, "tokens":100 })");
  ASSERT_TRUE(m);
  EXPECT_FALSE(m->is_step);
  EXPECT_EQ(m->validation_loss, 2.5);
}

TEST(MetricsLine, WhatIsNoneOfOursIsNothing) {
  for (const char* line : {"", "{}", "{\"loss\":1}", "{\"step\":1.5,\"loss\":1}", "{\"step\":-1}",
                           "{\"step\":1", "{\"step\":1}x", "[1]", "{\"step\":\"1\"}", "{\"step\":1,}",
                           "{\"step\":1,\"loss\":inf}", "{\"step\":1e99}", "{\"st\\u0065p\":1}", "not json"})
    EXPECT_FALSE(read_metrics_line(line)) << line;
}

}  // namespace
}  // namespace kiln
