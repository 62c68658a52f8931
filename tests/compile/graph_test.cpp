// The graph and its passes: broadcasting, what is found to be one value, what is dropped, what is refused.
#include "compile/graph.h"

#include <gtest/gtest.h>

#include <cmath>

#include "compile/derive.h"
#include "compile/fuse.h"
#include "compile/simplify.h"

namespace kiln::compile {
namespace {

TEST(Graph, EqualValuesAreOne) {
  Graph g;
  Builder b(g, DType::f32);
  const int x = b.input({true, 8}, DType::f32), y = b.input({true, 8}, DType::f32);
  EXPECT_EQ(b.add(x, y), b.add(y, x));
  EXPECT_NE(b.sub(x, y), b.sub(y, x));
  EXPECT_EQ(b.mul(x, b.number(1)), x);
  EXPECT_EQ(b.neg(b.neg(x)), x);
  EXPECT_NE(b.add(x, b.number(0)), x) << "-0 + 0 is 0, and no longer -0";
}

TEST(Graph, NumbersAreFolded) {
  Graph g;
  Builder b(g, DType::f32);
  const int n = b.unary(Prim::rsqrt, b.add(b.number(3), b.number(1)));
  EXPECT_EQ(g[n].prim, Prim::constant);
  EXPECT_EQ(g[n].number, 0.5);
  EXPECT_TRUE(std::isnan(evaluate(Prim::max, std::nan(""), 1, 0)));
}

TEST(Graph, ExtentsAreBroadcastOrRefused) {
  Graph g;
  Builder b(g, DType::f32);
  const int x = b.input({true, 8}, DType::f32), w = b.input({false, 8}, DType::f32),
            r = b.input({true, 1}, DType::f32), other = b.input({true, 6}, DType::f32);
  EXPECT_EQ(b.extent(b.mul(x, w)), (Extent{true, 8}));
  EXPECT_EQ(b.extent(b.mul(w, r)), (Extent{true, 8}));
  EXPECT_EQ(b.extent(b.row_sum(b.mul(x, x))), (Extent{true, 1}));
  EXPECT_EQ(b.extent(b.column_sum(x)), (Extent{false, 8}));
  EXPECT_THROW(b.add(x, other), Error);
  EXPECT_THROW(b.column_sum(w), Error);
  EXPECT_THROW(b.rotate(x, r, 4, false), Error);
}

TEST(Graph, ABrokenOneIsFound) {
  Graph g;
  Builder b(g, DType::f32);
  const int x = b.input({true, 8}, DType::f32), y = b.unary(Prim::exp, x);
  g.outputs = {y};
  EXPECT_NO_THROW(check_graph(g));
  Graph late = g;
  late.values[1].a = 1;
  EXPECT_THROW(check_graph(late), Error);
  Graph narrow = g;
  narrow.values[1].extent.width = 4;
  EXPECT_THROW(check_graph(narrow), Error);
  Graph empty = g;
  empty.outputs = {7};
  EXPECT_THROW(check_graph(empty), Error);
}

TEST(Prune, WhatNothingNeedsGoes) {
  Graph g;
  Builder b(g, DType::f32);
  const int x = b.input({true, 8}, DType::f32);
  (void)b.unary(Prim::exp, x);
  const int y = b.unary(Prim::sigmoid, x);
  g.outputs = {y};
  EXPECT_FALSE(is_minimal(g));
  const Pruned p = prune(g, g.outputs, DType::f32);
  EXPECT_TRUE(is_minimal(p.graph));
  EXPECT_EQ(p.graph.size(), 2);
  EXPECT_EQ(p.graph.outputs, std::vector<int>{p.moved[static_cast<std::size_t>(y)]});
}

// dx = 2 x g for y = x^2; what is not wanted has none.
TEST(Derive, OnlyWhatIsWanted) {
  Graph g;
  Builder b(g, DType::f32);
  const int x = b.input({true, 8}, DType::f32), w = b.input({false, 8}, DType::f32);
  g.outputs = {b.mul(b.mul(x, x), w)};
  const std::vector<char> both = {1, 1}, first = {1, 0};
  EXPECT_GE(derive(g, both, DType::f32).grads[1], 0);
  const Derived d = derive(g, first, DType::f32);
  EXPECT_GE(d.grads[0], 0);
  EXPECT_EQ(d.grads[1], -1);
}

TEST(Fuse, ReductionsOfRowsStayInOneKernelAndSumsOverRowsEndIt) {
  Graph g;
  Builder b(g, DType::f32);
  const int x = b.input({true, 8}, DType::f32);
  const int normed = b.div(x, b.row_sum(b.mul(x, x))), probs = b.softmax(normed);
  g.outputs = {probs};
  const Program one = fuse(g, 16);
  EXPECT_EQ(one.kernels.size(), 1u);
  check_program(one);
  EXPECT_LT(one.bytes(), one.bytes_apart());

  g.outputs = {b.sub(probs, b.column_sum(probs))};
  const Program two = fuse(g, 16);
  ASSERT_EQ(two.kernels.size(), 2u);
  check_program(two);
  EXPECT_NE(two.kernels[1].why.find("sum over all rows"), std::string::npos) << two.kernels[1].why;
  EXPECT_EQ(two.between.size(), 2u) << "the sum, and the probabilities that it is taken from";

  Program wrong = two;
  std::swap(wrong.kernels[0], wrong.kernels[1]);
  EXPECT_THROW(check_program(wrong), Error);
}

}  // namespace
}  // namespace kiln::compile
