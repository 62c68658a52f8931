// What small_m promises beyond its formula: a row's bits depend neither on the other rows nor on the
// number of threads, on every instruction set, and it is taken for few rows and never for many.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/param_store.h"
#include "autograd/tape.h"
#include "base/rng.h"
#include "ops/linear/linear.h"

namespace kiln {
namespace {

struct Seen : OpObserver {
  std::string variant;
  void on_op_begin(RankContext&, const OpEvent& e) override { variant = e.variant; }
};

class SmallM : public testing::TestWithParam<int> {
 protected:
  // y of rows [first, first + rows) of x.
  std::vector<float> run(int64_t first, int64_t rows, int64_t in, int64_t out, Precision precision,
                         int threads) {
    RankOptions options;
    options.cpu_isa = static_cast<CpuIsa>(GetParam());
    options.threads = threads;
    options.alloc_mode = AllocMode::raw;  // guards around every buffer
    RankContext ctx(options);
    ParamStore store;
    Param& w = store.add("w", {out, in}, {ParamInit::Kind::normal, 0.5f, 3});
    store.materialize(ctx, {precision, false});
    const GradModeGuard off(ctx, GradMode::off);
    std::vector<float> y;
    with_float(policy_of(precision).value, [&](auto zero) {
      using T = decltype(zero);
      const Tensor x = ctx.empty({rows, in}, dtype_of<T>());
      for (int64_t i = 0; i < rows * in; ++i)
        x.data<T>()[i] =
            static_cast<T>(philox_normal(philox_key(3, "x"), static_cast<uint64_t>(first * in + i)));
      const Tensor result = linear(ctx, x, w, "small_m");
      for (int64_t i = 0; i < result.numel(); ++i) y.push_back(static_cast<float>(result.data<T>()[i]));
    });
    return y;
  }
};

TEST_P(SmallM, ARowsBitsDependOnThatRowAlone) {
  if (static_cast<CpuIsa>(GetParam()) > best_cpu_isa()) GTEST_SKIP() << "not on this CPU";
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    for (const int64_t in : {1, 31, 64, 75, 800}) {
      const int64_t out = 5000 / in + 13;
      const auto all = run(0, 8, in, out, precision, 3);
      for (int64_t rows = 1; rows <= 8; ++rows) {
        const int64_t first = 8 - rows;
        const auto some = run(first, rows, in, out, precision, rows % 2 == 0 ? 1 : 2);
        EXPECT_EQ(some, std::vector<float>(all.begin() + first * out, all.end())) << in << " " << rows;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, SmallM, testing::Range(0, kCpuIsaCount));

TEST(SmallMChoice, IsForAtMostEightRows) {
  RankContext ctx;
  ParamStore store;
  Param& w = store.add("w", {5, 7}, {});
  store.materialize(ctx);
  Seen seen;
  ctx.add_observer(&seen);
  for (const int64_t rows : {1, 8, 9, 64}) {
    (void)linear(ctx, ctx.zeros({rows, 7}, DType::f32), w);
    EXPECT_EQ(seen.variant, rows <= 8 ? "small_m" : "packed") << rows;
  }
  ctx.remove_observer(&seen);
  EXPECT_THROW(linear(ctx, ctx.zeros({9, 7}, DType::f32), w, "small_m"), Error);
}

}  // namespace
}  // namespace kiln
