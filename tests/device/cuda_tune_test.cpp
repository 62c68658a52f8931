// Choosing GEMM algorithms by measurement: the choice changes speed and last bits, never the
// result; written down and read back it gives the same bits; one that is damaged is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "autograd/tape.h"
#include "base/rng.h"
#include "ops/batched_matmul/batched_matmul.h"
#include "support/gpu.h"

namespace kiln {
namespace {

class CudaTune : public testing::Test {
 protected:
  void SetUp() override { KILN_NEEDS_GPU(); }

  static RankOptions on_gpu() {
    RankOptions o;
    o.device = Device::cuda();
    return o;
  }

  // 96 x 200 times 200 x 136: one matmul, in bf16.
  static std::vector<float> matmul(RankContext& ctx) {
    const auto normals = [&](Shape shape, const char* name) {
      std::vector<bf16> host;
      for (int64_t i = 0; i < shape.numel(); ++i)
        host.push_back(static_cast<bf16>(philox_normal(philox_key(3, name), static_cast<uint64_t>(i))));
      Tensor t = ctx.empty(shape, DType::bf16);
      ctx.upload(t, host.data());
      return t;
    };
    const Tensor y =
        batched_matmul(ctx, normals({1, 96, 200}, "a"), normals({1, 136, 200}, "b"), {.transpose_b = true});
    std::vector<bf16> host(static_cast<std::size_t>(y.numel()));
    ctx.download(host.data(), y);
    std::vector<float> wide;
    for (bf16 h : host) wide.push_back(static_cast<float>(h));
    return wide;
  }
};

TEST_F(CudaTune, ChoicesChangeNoResultAndGiveTheSameBitsAgain) {
  RankContext ctx(on_gpu());
  EXPECT_TRUE(ctx.backend().tune_matmuls([](auto...) {}).empty());  // no matmul seen yet
  const std::vector<float> before = matmul(ctx);
  std::size_t told = 0;
  const auto choices = ctx.backend().tune_matmuls([&](auto...) { ++told; });
  ASSERT_EQ(choices.size(), 1u);
  EXPECT_EQ(told, 1u);
  EXPECT_NE(choices[0].problem.find("96x136x200"), std::string::npos) << choices[0].problem;
  EXPECT_EQ(choices[0].calls, 1);
  EXPECT_GT(choices[0].us, 0);
  EXPECT_LE(choices[0].us, choices[0].default_us);
  const std::vector<float> tuned = matmul(ctx);
  ASSERT_EQ(before.size(), tuned.size());
  for (std::size_t i = 0; i < before.size(); ++i)
    ASSERT_NEAR(before[i], tuned[i], 0.01 * (1 + std::abs(before[i]))) << i;

  RankContext other(on_gpu());
  other.backend().use_matmuls(choices);
  EXPECT_EQ(matmul(other), tuned);
}

TEST_F(CudaTune, ADamagedChoiceIsRefused) {
  RankContext ctx(on_gpu());
  (void)matmul(ctx);
  auto choices = ctx.backend().tune_matmuls([](auto...) {});
  choices[0].algorithm[3] = 'x';
  EXPECT_THROW(ctx.backend().use_matmuls(choices), Error);
  choices[0].algorithm.assign(128, 'f');  // hexadecimal, and no algorithm
  RankContext other(on_gpu());
  other.backend().use_matmuls(choices);
  EXPECT_THROW((void)matmul(other), Error);
}

}  // namespace
}  // namespace kiln
