// What attention promises beyond its formula: which positions a NaN can come from, what a query that sees
// nothing gets, and how memory grows.
#include "ops/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "base/rng.h"
#include "support/gpu.h"

namespace kiln {
namespace {

constexpr int64_t kQueries = 150, kKeys = 150, kWidth = 24;

struct Attended {
  std::vector<float> o, dq, dk, dv;
};

class AttentionVariants : public testing::TestWithParam<std::string> {
 protected:
  std::vector<float> normals(int64_t rows, const char* name) {
    std::vector<float> v;
    for (int64_t i = 0; i < rows * kWidth; ++i)
      v.push_back(philox_normal(philox_key(5, name), static_cast<uint64_t>(i)));
    return v;
  }
  bool masks_products() const { return variant() != "composed" && variant() != "compiled"; }
  void SetUp() override {
    if (on_cuda()) {
      KILN_NEEDS_GPU();
      const std::string why = refusal();
      if (!why.empty()) GTEST_SKIP() << why;
    }
    q = normals(kQueries, "q");
    k = normals(kKeys, "k");
    v = normals(kKeys, "v");
    dout = normals(kQueries, "dout");
  }
  // "cuda_flash" is flash on a GPU, in bf16; in fp32 those that say so in their name take only that.
  bool on_cuda() const { return std::string_view(GetParam()).starts_with("cuda_"); }
  bool in_fp32() const { return std::string_view(GetParam()).ends_with("32"); }
  std::string_view variant() const { return std::string_view(GetParam()).substr(on_cuda() ? 5 : 0); }

  // Why this GPU, or a row for some widths only, does not take these sizes.
  std::string refusal() const {
    RankOptions options;
    options.device = Device::cuda();
    RankContext ctx(options);
    const AttentionProblem p{1,      kQueries, kKeys, 1, 1, kWidth, in_fp32() ? DType::f32 : DType::bf16,
                             0.125f, true};
    for (const auto& row : AttentionOp::rows()) {
      if (row.device == DeviceType::cuda && row.name == variant() && row.unsupported != nullptr)
        return row.unsupported(p, ctx.traits());
    }
    return {};
  }

  template <class T>
  Attended run_in(const RankOptions& options) {
    RankContext ctx(options);
    auto upload = [&](const std::vector<float>& x) {
      std::vector<T> narrow;
      for (float f : x) narrow.push_back(static_cast<T>(f));
      Tensor t = ctx.empty({1, static_cast<int64_t>(x.size()) / kWidth, kWidth}, dtype_of<T>());
      ctx.upload(t, narrow.data());
      return t;
    };
    auto read = [&](const Tensor& t) {
      std::vector<T> narrow(static_cast<std::size_t>(t.numel()));
      ctx.download(narrow.data(), t);
      std::vector<float> x;
      for (T f : narrow) x.push_back(static_cast<float>(f));
      return x;
    };
    const Tensor tq = ctx.tape().watch(upload(q)), tk = ctx.tape().watch(upload(k)),
                 tv = ctx.tape().watch(upload(v));
    const Tensor o = attention(ctx, tq, tk, tv, {.heads = 1, .kv_heads = 1, .variant = variant()});
    Attended r;
    r.o = read(o);
    ctx.tape().backward(o, upload(dout));
    r.dq = read(ctx.tape().grad(tq));
    r.dk = read(ctx.tape().grad(tk));
    r.dv = read(ctx.tape().grad(tv));
    ctx.tape().reset();
    return r;
  }
  template <class F>
  void on_every_isa(F f) {
    RankOptions options;
    if (on_cuda()) {
      options.device = Device::cuda();
      f(in_fp32() ? run_in<float>(options) : run_in<bf16>(options));
      return;
    }
    options.threads = 2;
    for (int isa = 0; isa <= static_cast<int>(best_cpu_isa()); ++isa) {
      SCOPED_TRACE(name_of(static_cast<CpuIsa>(isa)));
      options.cpu_isa = static_cast<CpuIsa>(isa);
      f(run_in<float>(options));
    }
  }
  // Rows [0, first) of x are finite, rows [first, ...) are NaN as a whole or in part.
  static void expect_nan_from(const std::vector<float>& x, int64_t first) {
    for (int64_t i = 0; i < static_cast<int64_t>(x.size()) / kWidth; ++i) {
      bool nan = false;
      for (int64_t c = 0; c < kWidth; ++c) nan |= std::isnan(x[i * kWidth + c]);
      ASSERT_EQ(nan, i >= first) << "row " << i;
    }
  }

  std::vector<float> q, k, v, dout;
};

TEST_P(AttentionVariants, NanInAValueReachesTheQueriesThatSeeItAndNoOthers) {
  const int64_t j = 70;
  v[j * kWidth + 3] = NAN;
  on_every_isa([&](const Attended& r) {
    // A matmul of whole matrices multiplies the NaN by the mask's zeros: composed spreads it over the head.
    const int64_t first = masks_products() ? j : 0;
    for (int64_t i = 0; i < kQueries; ++i) ASSERT_EQ(std::isnan(r.o[i * kWidth + 3]), i >= first) << i;
    for (int64_t i = 0; i < kQueries; ++i) ASSERT_FALSE(std::isnan(r.o[i * kWidth + 2])) << i;
    expect_nan_from(r.dq, j);
  });
}

TEST_P(AttentionVariants, NanInAKeyReachesTheQueriesThatSeeItAndNoOthers) {
  const int64_t j = 100;
  k[j * kWidth] = NAN;
  on_every_isa([&](const Attended& r) {
    expect_nan_from(r.o, j);
    expect_nan_from(r.dq, masks_products() ? j : 0);  // composed: dq = dS k
  });
}

TEST_P(AttentionVariants, NanInAGradientReachesTheKeysItsQuerySeesAndNoOthers) {
  const int64_t i = 66;
  dout[i * kWidth + 5] = NAN;
  on_every_isa([&](const Attended& r) {
    for (int64_t j = 0; j < kKeys; ++j) {
      ASSERT_EQ(std::isnan(r.dv[j * kWidth + 5]), j <= i || !masks_products()) << j;
      ASSERT_FALSE(std::isnan(r.dv[j * kWidth + 4])) << j;
      ASSERT_EQ(std::isnan(r.dk[j * kWidth]), j <= i) << j;
    }
    for (int64_t n = 0; n < kQueries; ++n) ASSERT_EQ(std::isnan(r.dq[n * kWidth]), n == i) << n;
  });
}

TEST_P(AttentionVariants, AQueryThatSeesNothingGetsZeroAndGivesZero) {
  k.resize(70 * kWidth);  // queries 0 .. 79 come before the first key
  v.resize(70 * kWidth);
  if (masks_products()) {  // composed: q and dout of such a query go into dk and dv, times zero
    for (int64_t i = 0; i < 80 * kWidth; ++i) q[i] = dout[i] = NAN;
  }
  on_every_isa([&](const Attended& r) {
    for (int64_t i = 0; i < 80 * kWidth; ++i) ASSERT_TRUE(r.o[i] == 0 && r.dq[i] == 0) << i;
    for (const auto* x : {&r.o, &r.dq, &r.dk, &r.dv}) {
      for (float f : *x) ASSERT_TRUE(std::isfinite(f));
    }
  });
}

TEST_P(AttentionVariants, AQueryThatSeesNothingStaysZeroBesideValuesThatAreNotNumbers) {
  if (!masks_products()) GTEST_SKIP() << "composed multiplies masked values by zero";
  k.resize(70 * kWidth);
  v.resize(70 * kWidth);
  v[0] = NAN;  // of the key that queries from 80 on see
  on_every_isa([&](const Attended& r) {
    for (int64_t i = 0; i < 80 * kWidth; ++i) ASSERT_TRUE(r.o[i] == 0 && r.dq[i] == 0) << i;
    for (int64_t i = 80; i < kQueries; ++i) ASSERT_TRUE(std::isnan(r.o[i * kWidth])) << i;
  });
}

// Scores of 10^4 and more: softmax is all but a choice of one key, and exp of such a number would be
// infinite.
TEST_P(AttentionVariants, ScoresOfTenThousandGiveTheValueOfTheLargest) {
  for (auto* x : {&q, &k}) {
    for (float& f : *x) f = static_cast<float>(static_cast<bf16>(150 * f));  // the same in every format
  }
  on_every_isa([&](const Attended& r) {
    for (const auto* x : {&r.o, &r.dq, &r.dk, &r.dv}) {
      for (float f : *x) ASSERT_TRUE(std::isfinite(f));
    }
    if (variant().ends_with("tf32")) return;  // its scores are wrong by several units
    int decided = 0;
    for (int64_t i = 0; i < kQueries; ++i) {
      int64_t best = 0;
      double top = -INFINITY, second = -INFINITY;
      for (int64_t j = 0; j <= i; ++j) {
        double score = 0;
        for (int64_t c = 0; c < kWidth; ++c)
          score += static_cast<double>(q[i * kWidth + c]) * static_cast<double>(k[j * kWidth + c]);
        second = std::max(second, std::min(score, top));
        if (score > top) top = score, best = j;
      }
      if (top - second < 200) continue;  // 40 in the exponent: nothing else has a weight
      ++decided;
      for (int64_t c = 0; c < kWidth; ++c)
        ASSERT_NEAR(r.o[i * kWidth + c], v[best * kWidth + c], 0.02) << "query " << i;
    }
    EXPECT_GT(decided, kQueries / 2);
  });
}

// A row of each name on a GPU, but composed, which spreads what is not a number.
std::vector<std::string> cuda_rows() {
  std::vector<std::string> names;
  for (const auto& row : AttentionOp::rows()) {
    if (row.device == DeviceType::cuda && !row.composed) names.push_back(cat("cuda_", row.name));
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Cpu, AttentionVariants, testing::Values("flash", "naive", "composed", "compiled"));
INSTANTIATE_TEST_SUITE_P(Cuda, AttentionVariants, testing::ValuesIn(cuda_rows()));

// small_m takes too few queries for the cases above.
TEST(Attention, SmallMKeepsMaskedNansOutAndItsBitsOnAnyThreads) {
  constexpr int64_t kFew = 5, kMany = 90;
  std::vector<float> q, kv;
  for (uint64_t i = 0; i < kFew * kWidth; ++i) q.push_back(philox_normal(philox_key(5, "q"), i));
  for (uint64_t i = 0; i < kMany * kWidth; ++i) kv.push_back(philox_normal(philox_key(5, "kv"), i));
  kv[(kMany - 2) * kWidth] = NAN;                         // seen by the last two queries only
  const auto run = [&](int threads, std::size_t first) {  // queries from `first` on
    RankOptions options;
    options.threads = threads;
    RankContext ctx(options);
    const Tensor tq = ctx.empty({1, kFew - static_cast<int64_t>(first), kWidth}, DType::f32);
    const Tensor t = ctx.empty({1, kMany, kWidth}, DType::f32);
    ctx.upload(tq, q.data() + first * kWidth);
    ctx.upload(t, kv.data());
    const Tensor o = attention(ctx, tq, t, t, {.heads = 1, .kv_heads = 1, .variant = "small_m"});
    std::vector<float> x(static_cast<std::size_t>(o.numel()));
    ctx.download(x.data(), o);
    return x;
  };
  const auto same = [](float a, float b) { return float_bits(a) == float_bits(b); };
  const auto one = run(1, 0), three = run(3, 0), last = run(2, kFew - 1);
  ASSERT_EQ(one.size(), three.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_TRUE(same(one[i], three[i])) << i;
    EXPECT_EQ(std::isnan(one[i]), i / kWidth >= kFew - 2) << i;
  }
  for (std::size_t i = 0; i < last.size(); ++i) EXPECT_TRUE(same(last[i], one[(kFew - 1) * kWidth + i])) << i;
}

std::size_t peak_of_attention(std::string_view variant, int64_t T) {
  RankOptions options;
  options.device = Device::meta();
  RankContext ctx(options);
  auto leaf = [&] { return ctx.tape().watch(ctx.empty({1, T, 4 * 64}, DType::bf16)); };
  const Tensor q = leaf(), k = leaf(), v = leaf();
  const Tensor o = attention(ctx, q, k, v, {.heads = 4, .kv_heads = 4, .variant = variant});
  ctx.tape().backward(o, ctx.empty(o.shape(), o.dtype()));
  return ctx.allocator().stats().peak_total;
}

TEST(Attention, FlashMemoryGrowsWithTheLengthAndNotWithItsSquare) {
  EXPECT_GT(peak_of_attention("naive", 16384), 14 * peak_of_attention("naive", 4096));
  EXPECT_GT(peak_of_attention("composed", 16384), 14 * peak_of_attention("composed", 4096));
  EXPECT_LT(peak_of_attention("flash", 16384), 4 * peak_of_attention("flash", 4096) + (1 << 20));
}

// The one variant every device has: the schedule of a GPU, without one.
TEST(Attention, ComposedRunsOnMetaAsOnAGpu) {
  RankOptions options;
  options.device = Device::meta(DeviceType::cuda);
  RankContext ctx(options);
  auto leaf = [&](int64_t T, int64_t heads) {
    return ctx.tape().watch(ctx.empty({2, T, heads * 16}, DType::bf16));
  };
  const Tensor q = leaf(7, 4), k = leaf(9, 2), v = leaf(9, 2);
  const Tensor o = attention(ctx, q, k, v, {.heads = 4, .kv_heads = 2, .variant = "composed"});
  EXPECT_EQ(o.shape(), q.shape());
  ctx.tape().backward(o, ctx.empty(o.shape(), o.dtype()));
  EXPECT_EQ(ctx.tape().grad(k).shape(), k.shape());
}

}  // namespace
}  // namespace kiln
