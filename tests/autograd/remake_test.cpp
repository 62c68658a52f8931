// Saved tensors that backward makes again: freed after forward, made once, in time, with the variants of the
// first run, and freed with their last reader.
#include "autograd/remake.h"

#include <gtest/gtest.h>

#include "autograd/op_observer.h"
#include "base/error.h"
#include "ops/elementwise/unary.h"
#include "ops/swiglu/swiglu.h"

namespace kiln {
namespace {

constexpr int64_t kRows = 64, kCols = 512;

struct Recomputed final : OpObserver {
  std::vector<std::string> ops;
  void on_op_begin(RankContext&, const OpEvent& e) override {
    if (e.recomputed && e.pass == Pass::forward) ops.emplace_back(e.op);
  }
};

std::size_t live(RankContext& ctx) { return ctx.allocator().stats().live[Tag::activation]; }

struct Chain {
  Tensor x, dy;
  std::size_t kept = 0, dx_hash = 0;
  std::vector<std::string> again;
  std::vector<float> dx;
};

// y = square(swiglu(silu(x), x)), of which the two in the middle may be made again.
Chain run(bool silu_again, bool swiglu_again, bool forgetful = false) {
  RankContext ctx;
  const Shape shape{kRows, kCols};
  std::vector<float> values(static_cast<std::size_t>(kRows * kCols));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 17) / 8 - 1;
  Chain c;
  c.x = ctx.empty(shape, DType::f32);
  ctx.upload(c.x, values.data());
  c.dy = ctx.empty(shape, DType::f32);
  ctx.upload(c.dy, values.data());
  Recomputed watch;
  ctx.add_observer(&watch);
  Tape& tape = ctx.tape();
  const Tensor x = tape.watch(c.x);
  Tensor y;
  const std::size_t before = live(ctx);
  {
    Rematerializer again(ctx);
    int runs = 0;
    const auto make_gate = [&ctx, &runs, forgetful](std::span<const Tensor> in) {
      const Tensor gate = silu(ctx, in[0]);
      if (forgetful && ++runs > 1) (void)silu(ctx, gate);
      return Tensors{gate};
    };
    const auto make_product = [&ctx](std::span<const Tensor> in) {
      return Tensors{swiglu(ctx, in[0], in[1])};
    };
    const std::vector<Tensor> in = {x};
    const Tensor gate = (silu_again ? again.piece(in, make_gate) : make_gate(in))[0];
    const std::vector<Tensor> both = {gate, x};
    const Tensor a = (swiglu_again ? again.piece(both, make_product) : make_product(both))[0];
    y = square(ctx, a);
    again.give_up();
    if (forgetful) {
      tape.backward(y, c.dy);  // the counter is in scope as long as this block
      return c;
    }
  }
  c.kept = live(ctx) - before;
  tape.backward(std::move(y), c.dy);
  c.again = watch.ops;
  ctx.remove_observer(&watch);
  c.dx.resize(values.size());
  ctx.download(c.dx.data(), tape.grad(x));
  c.x = c.dy = {};
  tape.reset();
  return c;
}

TEST(Remake, FreesWhatItMakesAgainAndKeepsTheBits) {
  const Chain all = run(false, false), product = run(false, true), gate = run(true, false),
              both = run(true, true);
  const std::size_t one = kRows * kCols * sizeof(float);
  EXPECT_TRUE(all.again.empty());
  EXPECT_EQ(product.again, (std::vector<std::string>{"swiglu"}));
  EXPECT_EQ(gate.again, (std::vector<std::string>{"silu"}));
  // The product is needed first, and its gate is made for it; swiglu's backward finds the gate there.
  EXPECT_EQ(both.again, (std::vector<std::string>{"silu", "swiglu"}));
  EXPECT_EQ(all.kept - product.kept, one);
  EXPECT_EQ(all.kept - gate.kept, one);
  EXPECT_EQ(all.kept - both.kept, 2 * one);
  for (const Chain* c : {&product, &gate, &both}) EXPECT_EQ(c->dx, all.dx);
}

TEST(Remake, APieceThatDependsOnMoreIsAnError) {
  try {
    (void)run(true, false, /*forgetful=*/true);
    ADD_FAILURE() << "nothing was said";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("more ops than it did in forward"), std::string::npos) << e.what();
  }
}

TEST(Remake, WithoutABackwardItJustRuns) {
  RankContext ctx;
  const GradModeGuard off(ctx, GradMode::off);
  Rematerializer again(ctx);
  EXPECT_FALSE(again.active());
  const std::vector<Tensor> in = {ctx.zeros({2, 8}, DType::f32)};
  const Tensor y = again.piece(in, [&ctx](std::span<const Tensor> t) { return Tensors{silu(ctx, t[0])}; })[0];
  again.give_up();
  EXPECT_TRUE(y.defined());
  EXPECT_EQ(ctx.tape().size(), 0);
}

}  // namespace
}  // namespace kiln
