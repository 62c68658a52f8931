// The packed GEMM against a double loop: every instruction set this CPU has, all layouts, depths beyond
// one block, more columns than one band, adding to what is there, and the same bits for any number of
// threads.
#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "ops/gemm/cpu_gemm.h"

namespace kiln {
namespace {

struct Case {
  int64_t M, N, K;
  bool a_transposed, b_transposed;  // stored [K, M] and [N, K]
  bool accumulate = false;
  float alpha = 1;
};

std::vector<float> normals(int64_t n, const char* name) {
  std::vector<float> v(static_cast<std::size_t>(n));
  for (int64_t i = 0; i < n; ++i) v[i] = philox_normal(philox_key(9, name), static_cast<uint64_t>(i));
  return v;
}

Tensor upload(RankContext& ctx, std::vector<float>& values,
              DType dtype) {  // and rounds `values` to the dtype
  Tensor t = ctx.empty({static_cast<int64_t>(values.size())}, dtype);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::f32) t.data<float>()[i] = values[i];
    if (dtype == DType::bf16) values[i] = static_cast<float>(t.data<bf16>()[i] = bf16(values[i]));
    if (dtype == DType::f16) values[i] = static_cast<float>(t.data<fp16>()[i] = fp16(values[i]));
  }
  return t;
}

std::vector<float> gemm(const Case& c, DType in, CpuIsa isa, int threads, double* error) {
  RankOptions o;
  o.threads = threads;
  o.cpu_isa = isa;
  o.alloc_mode = AllocMode::raw;  // guards around every buffer
  RankContext ctx(o);
  const int64_t pad = 3;  // rows of C are wider than N
  std::vector<float> a = normals(c.M * c.K, "a"), b = normals(c.K * c.N, "b"),
                     old = normals(c.M * (c.N + pad), "c");
  const Tensor ta = upload(ctx, a, in), tb = upload(ctx, b, in), tc = upload(ctx, old, DType::f32);
  CpuGemm g{};
  g.M = c.M;
  g.N = c.N;
  g.K = c.K;
  g.a = ta.raw();
  g.a_row = c.a_transposed ? 1 : c.K;
  g.a_col = c.a_transposed ? c.M : 1;
  g.b = tb.raw();
  g.b_row = c.b_transposed ? 1 : c.N;
  g.b_col = c.b_transposed ? c.K : 1;
  g.c = tc.raw();
  g.c_row = c.N + pad;
  g.in = in;
  g.out = DType::f32;
  g.accumulate = c.accumulate;
  g.alpha = c.alpha;
  const Tensor scratch =
      ctx.empty({static_cast<int64_t>(cpu_gemm_workspace(g, isa))}, DType::u8, Tag::workspace);
  cpu_gemm(ctx, g, scratch.raw());
  std::vector<float> got(tc.data<float>(), tc.data<float>() + tc.numel());
  double worst = 0;
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      double sum = 0, size = 0;
      for (int64_t k = 0; k < c.K; ++k) {
        const double x = a[m * g.a_row + k * g.a_col], y = b[k * g.b_row + n * g.b_col];
        sum += x * y;
        size += std::abs(x * y);
      }
      const double before = c.accumulate ? old[m * g.c_row + n] : 0;
      worst = std::max(worst, std::abs(got[m * g.c_row + n] - (before + c.alpha * sum)) /
                                  (size + std::abs(before) + 1e-30));
    }
    for (int64_t n = c.N; n < c.N + pad; ++n)
      EXPECT_EQ(got[m * g.c_row + n], old[m * g.c_row + n]) << "wrote past a row";
  }
  *error = worst;
  return got;
}

TEST(Gemm, MatchesADoubleLoop) {
  const Case cases[] = {
      {1, 1, 1, false, true},      {14, 32, 192, false, true},       {15, 33, 193, false, false},
      {13, 31, 385, true, false},  {63, 65, 401, false, true},       {97, 7, 1000, true, true},
      {5, 129, 2, false, false},   {33, 40, 800, true, false, true}, {20, 70, 770, false, true, true, 0.5f},
      {300, 17, 801, true, false},  // several panels of rows in one task, blocks of full depth
      {33, 50, 4133, false, true},  // several blocks of depth on every path, a ragged last one
  };
  for (int i = 0; i <= static_cast<int>(best_cpu_isa()); ++i) {
    const auto isa = static_cast<CpuIsa>(i);
    for (DType in : {DType::f32, DType::bf16, DType::f16}) {
      for (const Case& c : cases) {
        double error = 0;
        const auto one = gemm(c, in, isa, 1, &error);
        // Inputs are exact in every format; only fp32 sums round: sqrt(K) roundings of the running sum.
        EXPECT_LT(error, 4e-7 * std::sqrt(static_cast<double>(c.K) + 1))
            << name_of(isa) << " " << name_of(in) << " " << c.M << "x" << c.N << "x" << c.K;
        EXPECT_EQ(gemm(c, in, isa, 3, &error), one) << name_of(isa) << " " << name_of(in);
      }
    }
  }
}

TEST(Gemm, MoreColumnsThanOneBand) {
  for (CpuIsa isa : {CpuIsa::plain, best_cpu_isa()}) {
    double error = 0;
    gemm({3, 2100, 2100, false, true}, DType::f32, isa, 2, &error);  // 17.6 MB of B: two bands
    EXPECT_LT(error, 2e-5);
  }
}

TEST(Gemm, NoStepsGiveZero) {
  double error = 0;
  const auto got = gemm({2, 3, 0, false, false}, DType::f32, best_cpu_isa(), 1, &error);
  for (int m : {0, 1}) {
    for (int n : {0, 1, 2}) EXPECT_EQ(got[m * 6 + n], 0);
  }
}

}  // namespace
}  // namespace kiln
