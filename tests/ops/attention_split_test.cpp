// flash where its forward splits the keys: how many splits a problem has, and that nothing is lost or
// carried over where they are combined. That the sums are right at every width: attention_widths_test.cpp.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/tape.h"
#include "base/rng.h"
#include "ops/attention/flash/flash_split.h"
#include "support/gpu.h"

namespace kiln {
namespace {

AttentionProblem problem(int64_t Tq, int64_t Tk, int64_t heads = 1, int64_t D = 64, bool causal = true) {
  return {1, Tq, Tk, heads, heads, D, DType::bf16, 0.125f, causal};
}

TEST(AttentionSplit, IsForFewBlocksAndManyKeysAlone) {
  EXPECT_EQ(flash::num_splits(problem(448, 448)), 1);
  EXPECT_GT(flash::num_splits(problem(1024, 1024)), 1);
  EXPECT_GT(flash::num_splits(problem(1, 4096)), 1);
  EXPECT_EQ(flash::num_splits(problem(1024, 1024, 32)), 1);
  EXPECT_EQ(flash::num_splits(problem(0, 1024)), 1);
  EXPECT_EQ(flash::num_splits(problem(1024, 0)), 1);
  AttentionProblem packed = problem(1024, 1024);
  packed.varlen = true;
  packed.all_queries = packed.all_keys = 1024;
  EXPECT_EQ(flash::num_splits(packed), 1);
}

TEST(AttentionSplit, LeavesEachSplitTwoTilesAndAsksForTheMemoryOfAll) {
  for (int64_t D : {16, 64, 128, 256}) {
    for (int64_t Tk : {512, 1000, 4096, 16384, 1 << 20}) {
      for (int64_t Tq : {int64_t{1}, int64_t{77}, Tk}) {
        SCOPED_TRACE(cat(Tq, " x ", Tk, " x ", D));
        const AttentionProblem p = problem(Tq, Tk, 2, D);
        const int64_t splits = flash::num_splits(p);
        EXPECT_GE((Tk + 63) / 64 / splits, splits == 1 ? 1 : 2);
        EXPECT_LE(splits, flash::kMaxSplits);
        const std::size_t one = static_cast<std::size_t>(2 * Tq * (flash::flash_tiles(D).width + 1)) * 4;
        EXPECT_EQ(flash::SplitWorkspace(p).bytes(), splits == 1 ? 0 : static_cast<std::size_t>(splits) * one);
        for (const auto& row : AttentionOp::rows()) {
          if (row.device != DeviceType::cuda || std::string_view(row.name) != "flash") continue;
          EXPECT_EQ(row.workspace(p, Pass::forward), flash::SplitWorkspace(p).bytes());
        }
      }
    }
  }
}

// Which of the two takes a call of the C interface its strides say, after the workspace was requested.
TEST(AttentionSplit, FlashHoppersWorkspaceIsEnoughForFlashsBackward) {
  const auto bytes = [](std::string_view variant, const AttentionProblem& p) {
    for (const auto& row : AttentionOp::rows()) {
      if (row.device == DeviceType::cuda && row.name == variant) return row.workspace(p, Pass::backward);
    }
    return std::size_t{0};
  };
  for (int64_t D : {8, 32, 64, 80, 96, 128}) {
    for (int64_t T : {1, 63, 65, 129, 1000}) {
      AttentionProblem p = problem(T, T, 3, D);
      EXPECT_GT(bytes("flash", p), 0u);
      EXPECT_GE(bytes("flash_hopper", p), bytes("flash", p)) << T << " x " << D;
      p.varlen = true;
      p.B = 7, p.all_queries = p.all_keys = 3 * T;
      EXPECT_GE(bytes("flash_hopper", p), bytes("flash", p)) << T << " x " << D << " varlen";
    }
  }
}

constexpr int64_t kWidth = 32;

class CudaAttentionSplit : public testing::Test {
 protected:
  void SetUp() override { KILN_NEEDS_GPU(); }
  static std::vector<float> normals(int64_t rows, const char* name) {
    std::vector<float> v;
    for (int64_t i = 0; i < rows * kWidth; ++i)
      v.push_back(philox_normal(philox_key(5, name), static_cast<uint64_t>(i)));
    return v;
  }
  std::vector<float> attend(bool causal = true) const {
    const int64_t queries = static_cast<int64_t>(q.size()) / kWidth,
                  keys = static_cast<int64_t>(k.size()) / kWidth;
    EXPECT_GT(flash::num_splits(problem(queries, keys, 1, kWidth, causal)), 1);
    RankOptions options;
    options.device = Device::cuda();
    RankContext ctx(options);
    const auto upload = [&](const std::vector<float>& x) {
      std::vector<bf16> narrow;
      for (float f : x) narrow.push_back(static_cast<bf16>(f));
      Tensor t = ctx.empty({1, static_cast<int64_t>(x.size()) / kWidth, kWidth}, DType::bf16);
      ctx.upload(t, narrow.data());
      return t;
    };
    const Tensor o = attention(ctx, upload(q), upload(k), upload(v), {.causal = causal, .variant = "flash"});
    std::vector<bf16> narrow(static_cast<std::size_t>(o.numel()));
    ctx.download(narrow.data(), o);
    std::vector<float> x;
    for (bf16 f : narrow) x.push_back(static_cast<float>(f));
    return x;
  }
  std::vector<float> q = normals(700, "q"), k = normals(700, "k"), v = normals(700, "v");
};

TEST_F(CudaAttentionSplit, NanInAValueReachesItsChannelOfTheQueriesThatSeeIt) {
  for (int64_t j : {0, 300, 699}) {
    SCOPED_TRACE(j);
    const auto good = v;
    v[j * kWidth + 3] = NAN;
    const std::vector<float> o = attend();
    for (int64_t i = 0; i < 700; ++i) {
      ASSERT_EQ(std::isnan(o[i * kWidth + 3]), i >= j) << i;
      ASSERT_FALSE(std::isnan(o[i * kWidth + 2])) << i;
    }
    v = good;
  }
}

TEST_F(CudaAttentionSplit, NanInAKeyReachesTheQueriesThatSeeItAndNoOthers) {
  k[400 * kWidth] = NAN;
  const std::vector<float> o = attend();
  for (int64_t i = 0; i < 700 * kWidth; ++i) ASSERT_EQ(std::isnan(o[i]), i >= 400 * kWidth) << i;
}

TEST_F(CudaAttentionSplit, AQueryThatSeesNothingGetsZero) {
  k.resize(550 * kWidth);  // queries 0 .. 149 come before the first key
  v.resize(550 * kWidth);
  v[0] = NAN;
  const std::vector<float> o = attend();
  for (int64_t i = 0; i < 150 * kWidth; ++i) ASSERT_EQ(o[i], 0) << i;
  for (int64_t i = 150; i < 700; ++i) {
    ASSERT_TRUE(std::isnan(o[i * kWidth])) << i;
    ASSERT_TRUE(std::isfinite(o[i * kWidth + 1])) << i;
  }
}

// A split whose scores are 10^3 below another's counts for nothing, and exp of the difference must not
// overflow.
TEST_F(CudaAttentionSplit, ASplitFarBelowAnotherCountsForNothing) {
  for (int64_t j = 0; j < 700; ++j) {
    for (int64_t c = 0; c < kWidth; ++c) k[j * kWidth + c] = c == 0 ? (j == 650 ? 50.0f : -50.0f) : 0;
  }
  for (int64_t i = 0; i < 700; ++i) q[i * kWidth] = 100;
  const std::vector<float> o = attend(false);
  for (int64_t i = 0; i < 700; ++i) {
    for (int64_t c = 0; c < kWidth; ++c)
      ASSERT_EQ(o[i * kWidth + c], static_cast<float>(static_cast<bf16>(v[650 * kWidth + c]))) << i;
  }
}

}  // namespace
}  // namespace kiln
