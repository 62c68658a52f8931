#include "model/size_registry.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "base/error.h"
#include "model/llama.h"

namespace kiln {
namespace {

// Golden numbers, in the precision they were published with.
TEST(SizeRegistry, ParameterCountsAreTheKnownOnes) {
  const std::map<std::string, std::pair<double, double>> billions = {
      {"small", {0.1286, 5e-5}}, {"medium", {0.4232, 5e-5}},        {"large", {0.9694, 5e-5}},
      {"xl25", {1.9982, 5e-5}},  {"xl26", {3.4068, 5e-5}},          {"2.7b", {3.4068, 5e-5}},
      {"10b", {12.833, 5e-4}},   {"leaderboard8b", {8.1257, 5e-5}}, {"xxl", {219.85, 5e-3}}};
  for (const auto& [name, known] : billions) {
    EXPECT_NEAR(static_cast<double>(param_count(find_model_size(name))) / 1e9, known.first, known.second)
        << name;
  }
}

TEST(SizeRegistry, Fp32StateIsTheKnownOne) {
  const std::map<std::string, double> gib = {{"small", 1.92}, {"medium", 6.31}, {"large", 14.45},
                                             {"xl25", 29.78}, {"2.7b", 50.77},  {"10b", 191.2}};
  for (const auto& [name, known] : gib) {
    const double bytes = static_cast<double>(param_count(find_model_size(name)) * kFp32StateBytes);
    EXPECT_NEAR(bytes / 0x1p30, known, known > 100 ? 0.05 : 0.005) << name;
  }
}

TEST(SizeRegistry, EverySizeHasItsOwnNameAndWholeHeads) {
  std::set<std::string_view> seen;
  for (const ModelSize& s : model_sizes()) {
    EXPECT_TRUE(seen.insert(s.name).second) << s.name;
    EXPECT_NE(s.name, "xl") << "two tables mean different models by it";
    if (s.kind != SizeKind::llama) continue;
    EXPECT_EQ(s.head_dim() * s.heads, s.d_model) << s.name;
    EXPECT_NO_THROW(check_config(config_of(s))) << s.name;
  }
}

// The formula against the model itself, parameter by parameter.
TEST(SizeRegistry, CountsWhatTheModelHolds) {
  for (const char* name : {"nano", "tiny", "small", "10b", "leaderboard8b"}) {
    const ModelSize& size = find_model_size(name);
    Llama model(config_of(size));
    int64_t counted = 0;
    for (const Param& p : model.params().params()) counted += p.shape.numel();
    EXPECT_EQ(counted, param_count(size)) << name;
  }
  RankOptions options;
  options.device = Device::meta();
  RankContext ctx(options);
  const ModelSize& small = find_model_size("small");
  Llama model(config_of(small));
  model.params().materialize(ctx);
  EXPECT_EQ(model.params().total(), param_count(small));  // every extent is a multiple of 16 bytes
}

// 254 TFLOP/s at 6.08 ms for batch 4, context 512: the figure the convention was published with.
TEST(SizeRegistry, FlopsFollowTheStatedConvention) {
  EXPECT_NEAR(train_flops_per_token(find_model_size("small"), 512) * 4 * 512, 254e12 * 6.08e-3, 0.005e12);
  EXPECT_EQ(train_flops_per_token(find_model_size("xxl"), 512),
            6.0 * static_cast<double>(param_count(find_model_size("xxl"))));
}

TEST(SizeRegistry, UnknownNamesGetTheNearest) {
  auto hint = [](std::string_view name) {
    try {
      find_model_size(name);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.hint();
    }
    return std::string("found");
  };
  EXPECT_EQ(hint("smal"), "did you mean 'small'?");
  EXPECT_EQ(hint("xl"), "the tables of 2025 and 2026 differ: say xl25 or xl26");
  EXPECT_EQ(hint("frobnicate"), "kiln sizes lists them");
  EXPECT_THROW(config_of(find_model_size("xxl")), Error);
}

}  // namespace
}  // namespace kiln
