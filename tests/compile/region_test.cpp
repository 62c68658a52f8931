// Regions on the tape: what a call refuses, what it keeps, what it gives; and the ops that have primitives.
#include "autograd/region.h"

#include <gtest/gtest.h>

#include "autograd/tape.h"
#include "compile/compiler.h"
#include "compile/expand.h"
#include "ops/add/add.h"
#include "ops/batched_matmul/batched_matmul.h"
#include "ops/elementwise/binary.h"
#include "ops/elementwise/unary.h"
#include "ops/masked_softmax/masked_softmax.h"
#include "ops/op_list.h"
#include "support/op_fixture.h"

namespace kiln {
namespace {

class RegionTest : public OpFixture {};

const Region kSquareSum{"square+add", {}, [](RankContext& c, const RegionInputs& in) {
                          return Tensors{add(c, mul(c, in.tensors[0], in.tensors[0]), in.tensors[1])};
                        }};

TEST_F(RegionTest, IsOneNodeWithTheOpsGradient) {
  const Tensor x = ctx.tape().watch(make({1, 3}, {1, 2, 3})), y = ctx.tape().watch(make({1, 3}, {5, 5, 5}));
  const Tensor z = compiled(ctx, kSquareSum, {{x, y}, {}})[0];
  EXPECT_EQ(read(z), (std::vector<float>{6, 9, 14}));
  ASSERT_EQ(ctx.tape().nodes().size(), 1u);
  EXPECT_STREQ(ctx.tape().nodes()[0].op, "compiled");
  EXPECT_STREQ(ctx.tape().nodes()[0].variant, "square+add");
  EXPECT_EQ(ctx.tape().nodes()[0].saved.size(), 1) << "x alone";
  const Tensor dz = make({1, 3}, {1, 10, 100});
  ctx.tape().backward(z, dz);
  EXPECT_EQ(read(ctx.tape().grad(x)), (std::vector<float>{2, 40, 600}));
  EXPECT_EQ(read(ctx.tape().grad(y)), (std::vector<float>{1, 10, 100}));
  EXPECT_EQ(ctx.tape().grad(y).raw(), dz.raw()) << "a gradient that is passed on was copied";
}

TEST_F(RegionTest, IsRecordedOnceForEachShape) {
  const auto& made = static_cast<compile::Compiler&>(ctx.regions()).regions();
  const Tensor x = make({1, 3}, {1, 2, 3}), wide = make({2, 2}, {1, 2, 3, 4});
  for (int i = 0; i < 3; ++i) (void)compiled(ctx, kSquareSum, {{x, x}, {}});
  EXPECT_EQ(made.size(), 1u);
  EXPECT_EQ(read(compiled(ctx, kSquareSum, {{wide, wide}, {}})[0]), (std::vector<float>{2, 6, 12, 20}));
  EXPECT_EQ(made.size(), 2u);
}

TEST_F(RegionTest, ATensorTwiceGetsBothGradients) {
  const Tensor x = ctx.tape().watch(make({1, 2}, {3, 4}));
  const Tensor z = compiled(ctx, kSquareSum, {{x, x}, {}})[0];
  ctx.tape().backward(z, make({1, 2}, {1, 1}));
  EXPECT_EQ(read(ctx.tape().grad(x)), (std::vector<float>{7, 9}));
}

TEST_F(RegionTest, GradientsAddToWhatIsThere) {
  const Tensor x = ctx.tape().watch(make({1, 2}, {3, 4})), y = make({1, 2}, {0, 0});
  const Tensor a = compiled(ctx, kSquareSum, {{x, y}, {}})[0], b = silu(ctx, x);
  (void)b;
  const Tensor c = add(ctx, a, compiled(ctx, kSquareSum, {{x, y}, {}})[0]);
  ctx.tape().backward(c, make({1, 2}, {1, 1}));
  EXPECT_EQ(read(ctx.tape().grad(x)), (std::vector<float>{12, 16}));
}

TEST_F(RegionTest, NothingGivesNothing) {
  const Region softmax{"masked_softmax", {}, [](RankContext& c, const RegionInputs& in) {
                         return Tensors{masked_softmax(c, in.tensors[0], {})};
                       }};
  for (const Shape& s : {Shape{2, 3, 0}, Shape{0, 3, 4}, Shape{2, 0, 4}}) {
    const Tensor x = ctx.tape().watch(ctx.empty(s, DType::f32));
    const Tensor y = compiled(ctx, softmax, {{x}, {}})[0];
    EXPECT_EQ(y.shape(), s);
    ctx.tape().backward(y, ctx.empty(s, DType::f32));
    EXPECT_EQ(ctx.tape().grad(x).shape(), s);
    ctx.tape().reset();
  }
}

TEST_F(RegionTest, WhatItCannotHoldIsSaid) {
  const Tensor x = make({1, 2, 2}, {1, 2, 3, 4}), y = make({1, 2}, {1, 2});
  const Region matmul{
      "matmul", {}, [](RankContext& c, const RegionInputs& in) {
        return Tensors{batched_matmul(c, in.tensors[0], in.tensors[0], {.heads = 1, .b_heads = 1})};
      }};
  try {
    (void)compiled(ctx, matmul, {{x}, {}});
    ADD_FAILURE() << "a matmul was compiled";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("batched_matmul, which has no primitives"), std::string::npos)
        << e.what();
  }
  EXPECT_THROW((void)compiled(ctx, kSquareSum, {{}, {}}), Error);
  EXPECT_THROW((void)compiled(ctx, kSquareSum, {{y, Tensor()}, {}}), Error);
  EXPECT_THROW((void)compiled(ctx, kSquareSum, {{y, make({1, 3}, {1, 2, 3})}, {}}), Error);
}

TEST(Expansions, AreOfOpsThatExist) {
  const std::vector<OpListing> ops = list_ops();
  for (const compile::Expansion& e : compile::expansions()) EXPECT_NO_THROW((void)find_op(ops, e.op)) << e.op;
  EXPECT_EQ(compile::find_expansion("linear"), nullptr);
}

}  // namespace
}  // namespace kiln
