#include "perf/model/gemm_padding.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

// The plain kernel's tiles, whatever the machine: KILN_SIMD_LEVEL 0 is 2 rows by 2 vectors.
TimedOp linear_call(int64_t rows, int64_t out, double in, Pass pass = Pass::forward) {
  TimedOp op{"linear", "packed", pass, false, {}};
  op.rows = rows;
  op.columns = out;
  op.cost.flops = (pass == Pass::forward ? 2 : 4) * static_cast<double>(rows * out) * in;
  return op;
}

double ratio(const TimedOp& op) { return tile_ratio(op, DType::f32, CpuIsa::plain); }

TEST(GemmPadding, WholeTilesHaveNone) {
  EXPECT_EQ(ratio(linear_call(64, 64, 64)), 1);
  EXPECT_EQ(ratio(linear_call(64, 64, 64, Pass::backward)), 1);
}

TEST(GemmPadding, AnOddExtentIsFilledUp) {
  EXPECT_NEAR(ratio(linear_call(63, 64, 64)), 64.0 / 63, 1e-12);
  EXPECT_GT(ratio(linear_call(64, 65, 64)), 1);
}

TEST(GemmPadding, BackwardIsTheSameWhicheverGradientComesFirst) {
  // 63 rows, in 64, out 61: dx is [63, 64] and dweight [61, 64].
  const double by_dx = ratio(linear_call(63, 64, 61, Pass::backward));
  EXPECT_NEAR(by_dx, ratio(linear_call(61, 64, 63, Pass::backward)), 1e-12);
  EXPECT_GT(by_dx, 1);
}

TEST(GemmPadding, OfOthersNothingIsKnown) {
  TimedOp op = linear_call(63, 65, 64);
  op.variant = "lt";
  EXPECT_EQ(ratio(op), 1);
  op.variant = "small_m";
  EXPECT_EQ(ratio(op), 1);
  op.op = "swiglu";
  op.variant = "packed";
  EXPECT_EQ(ratio(op), 1);
}

}  // namespace
}  // namespace kiln
