#include "base/nearest_name.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace kiln {
namespace {

const std::vector<std::string_view> kNames = {"doctor", "ops", "train", "rms_norm", "cross_entropy"};

TEST(NearestName, FindsSlips) {
  EXPECT_EQ(nearest_name("docter", kNames), "doctor");
  EXPECT_EQ(nearest_name("rmsnorm", kNames), "rms_norm");
  EXPECT_EQ(nearest_name("cross_entropi", kNames), "cross_entropy");
  EXPECT_EQ(nearest_name("TRAIN", kNames), "train");
}

TEST(NearestName, CountsASwapAsOneSlip) {
  EXPECT_EQ(nearest_name("osp", kNames), "ops");
  EXPECT_EQ(nearest_name("tarin", kNames), "train");
}

TEST(NearestName, StaysSilentWhenNothingIsNear) {
  EXPECT_EQ(nearest_name("quantize", kNames), "");
  EXPECT_EQ(nearest_name("xyz", kNames), "");
  EXPECT_EQ(nearest_name("", kNames), "");
  EXPECT_EQ(nearest_name("doctor", {}), "");
}

TEST(NearestName, TakesTheClosestAndOfEqualsTheFirst) {
  const std::vector<std::string_view> names = {"cpu_tiled", "cpu_naive", "cuda_naive"};
  EXPECT_EQ(nearest_name("cpu_naiv", names), "cpu_naive");
  const std::vector<std::string_view> equals = {"abcdex", "abcdey"};
  EXPECT_EQ(nearest_name("abcdez", equals), "abcdex");
}

TEST(NearestName, DoesNotCompareHugeInput) {
  const std::string huge(1 << 20, 'a');
  EXPECT_EQ(nearest_name(huge, kNames), "");
  const std::vector<std::string_view> huge_names = {huge};
  EXPECT_EQ(nearest_name("aaaa", huge_names), "");
}

}  // namespace
}  // namespace kiln
