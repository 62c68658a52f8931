#include "studies/shared_ceilings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace kiln {
namespace {

RankOptions one_thread() {
  RankOptions options;
  options.threads = 1;
  return options;
}

Ceilings some(double copy) { return {copy, {{DType::f32, {"fma", 2 * copy}}}}; }

TEST(SharedCeilings, OneMeasurementServesAllProcessesOfACommand) {
  RankContext ctx(one_thread());
  std::string path;
  {
    const SharedCeilings shared;
    path = std::getenv(kCeilingsVariable);
    EXPECT_FALSE(shared_ceilings(ctx, {DType::f32}));
    share_ceilings(ctx, {DType::f32}, some(5e9));
    std::ofstream(path, std::ios::app) << "{\"key\": \"cut o\n";
    const auto found = shared_ceilings(ctx, {DType::f32});
    ASSERT_TRUE(found);
    EXPECT_EQ(found->copy, 5e9);
    EXPECT_EQ(found->flops.at(DType::f32).per_second, 1e10);
    EXPECT_EQ(found->flops.at(DType::f32).name, "fma");
    EXPECT_EQ(CeilingWatch(ctx, {DType::f32}).finish().copy, 5e9) << "what is known is not measured again";
    EXPECT_FALSE(shared_ceilings(ctx, {DType::bf16})) << "another dtype";
    RankOptions two = one_thread();
    two.threads = 2;
    RankContext other(two);
    EXPECT_FALSE(shared_ceilings(other, {DType::f32})) << "another number of threads";
    const SharedCeilings inner;
    EXPECT_EQ(std::getenv(kCeilingsVariable), path) << "a command in a command shares with it";
  }
  EXPECT_EQ(std::getenv(kCeilingsVariable), nullptr);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(shared_ceilings(ctx, {DType::f32}));
}

}  // namespace
}  // namespace kiln
