// The tape's own promises: first touch writes and later ones add, gradients passed on without copies, no-grad
// scopes, splitting, recompute with pinned variants, parameter hooks and ties.
#include "autograd/tape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/param_store.h"
#include "ops/add/add.h"
#include "ops/attention/attention.h"
#include "ops/elementwise/binary.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/swiglu/swiglu.h"
#include "support/op_fixture.h"

namespace kiln {
namespace {

class TapeTest : public OpFixture {
 protected:
  Tensor ones(const Shape& s) {
    return make(s, std::vector<float>(static_cast<std::size_t>(s.numel()), 1.0f));
  }
};

TEST_F(TapeTest, GradientsOfAValueUsedTwiceAdd) {
  const Tensor x = ctx.tape().watch(make({1, 3}, {1, 2, 3}));
  const Tensor y = add(ctx, add(ctx, x, x), x);
  ctx.tape().backward(y, make({1, 3}, {1, 10, 100}));
  EXPECT_EQ(read(ctx.tape().grad(x)), (std::vector<float>{3, 30, 300}));
}

TEST_F(TapeTest, EveryPartOfAResultMayBringAGradient) {
  const Tensor x = ctx.tape().watch(make({1, 2}, {1, 2})), z = make({1, 2}, {3, 5});
  const Tensor a = add(ctx, x, z), b = mul(ctx, x, z);
  ctx.tape().give_grad(b, make({1, 2}, {1, 10}));
  ctx.tape().backward(a, make({1, 2}, {100, 1000}));
  EXPECT_EQ(read(ctx.tape().grad(x)), (std::vector<float>{103, 1050}));
  EXPECT_THROW(ctx.tape().give_grad(z, ones({1, 2})), Error);
}

TEST_F(TapeTest, PassedOnGradientsAreSharedAndNotOverwritten) {
  const Tensor a = ctx.tape().watch(make({1, 2}, {1, 2})), b = ctx.tape().watch(make({1, 2}, {3, 4}));
  // y = (a + b) + a: b's gradient is the shared output gradient; adding to a's must not change it.
  const Tensor y = add(ctx, add(ctx, a, b), a);
  const Tensor dy = make({1, 2}, {5, 7});
  ctx.tape().backward(y, dy);
  EXPECT_EQ(read(ctx.tape().grad(a)), (std::vector<float>{10, 14}));
  EXPECT_EQ(read(ctx.tape().grad(b)), (std::vector<float>{5, 7}));
  EXPECT_EQ(read(dy), (std::vector<float>{5, 7}));
  EXPECT_EQ(ctx.tape().grad(b).raw(), dy.raw()) << "a passed-on gradient was copied";
}

// The same as two leaves of equal values, whose gradients are then added by hand.
TEST_F(TapeTest, AValueMayBeSeveralInputsOfOneOp) {
  const std::vector<float> values = {0.5f, -1, 2, 3, -0.25f, 1, 0.75f, -2};
  AttentionOptions two_heads;
  two_heads.heads = two_heads.kv_heads = 2;
  auto swiglu_of = [&](const Tensor& a, const Tensor& b, const Tensor&) { return swiglu(ctx, a, b); };
  auto attention_of = [&](const Tensor& a, const Tensor& b, const Tensor& c) {
    return attention(ctx, a, b, c, two_heads);
  };
  auto check = [&](const Shape& shape, auto op) {
    ctx.tape().reset();
    std::vector<Tensor> leaves;
    leaves.reserve(3);
    for (int i = 0; i < 3; ++i) leaves.push_back(ctx.tape().watch(make(shape, values)));
    ctx.tape().backward(op(leaves[0], leaves[1], leaves[2]), make(shape, values));
    std::vector<float> sum(values.size());
    for (const Tensor& leaf : leaves) {
      if (!ctx.tape().grad(leaf).defined()) continue;
      const std::vector<float> part = read(ctx.tape().grad(leaf));
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    for (int before : {0, 1}) {  // alone, and adding to what another use has left
      ctx.tape().reset();
      const Tensor x = ctx.tape().watch(make(shape, values));
      Tensor y = op(x, x, x);
      if (before == 1) y = add(ctx, y, x);
      ctx.tape().backward(y, make(shape, values));
      const std::vector<float> got = read(ctx.tape().grad(x));
      for (std::size_t i = 0; i < sum.size(); ++i) {
        EXPECT_NEAR(got[i], sum[i] + static_cast<float>(before) * values[i], 1e-5) << before << " " << i;
      }
    }
  };
  check({2, 4}, swiglu_of);
  check({1, 2, 4}, attention_of);
}

TEST_F(TapeTest, NothingIsRecordedWithoutNeed) {
  const Tensor x = ones({2, 4});
  add(ctx, x, x);
  EXPECT_EQ(ctx.tape().size(), 0) << "no input wants a gradient";
  const Tensor w = ctx.tape().watch(x);
  {
    GradModeGuard off(ctx, GradMode::off);
    add(ctx, w, w);
    EXPECT_EQ(ctx.tape().size(), 0) << "no-grad scope";
  }
  add(ctx, w, w);
  EXPECT_EQ(ctx.tape().size(), 1);
}

TEST_F(TapeTest, HandlesFromAnEarlierStepAreConstants) {
  const Tensor old = ctx.tape().watch(ones({1, 2}));
  ctx.tape().reset();
  EXPECT_FALSE(ctx.tape().needs_grad(old));
  EXPECT_THROW(ctx.tape().backward(old, ones({1, 2})), Error);
}

TEST_F(TapeTest, SavedTensorsAreFreedAsBackwardGoes) {
  const Tensor x = ctx.tape().watch(ones({64, 64}));
  Tensor h = x;
  for (int i = 0; i < 4; ++i) h = swiglu(ctx, h, h);
  const std::size_t before = ctx.allocator().stats().live[Tag::activation];
  ctx.tape().backward(std::move(h), ones({64, 64}));
  EXPECT_EQ(ctx.tape().size(), 0);
  EXPECT_LT(ctx.allocator().stats().live[Tag::activation], before);
}

TEST_F(TapeTest, NodesNameWhatTheySave) {
  ParamStore store;
  Param& w = store.add("norm", {8}, {ParamInit::Kind::ones, 0, 0});
  store.materialize(ctx);
  const Tensor x = ctx.tape().watch(ones({2, 3, 8}));
  rms_norm(ctx, x, w, 1e-5f);
  ASSERT_EQ(ctx.tape().size(), 1);
  const Node& n = ctx.tape().nodes()[0];
  EXPECT_STREQ(n.op, "rms_norm");
  EXPECT_STREQ(n.variant, "fused");
  ASSERT_EQ(n.saved.size(), 2);
  EXPECT_STREQ(n.saved[0].name, "x");
  EXPECT_EQ(n.saved[0].tensor.raw(), x.raw()) << "an input is kept by reference";
  EXPECT_STREQ(n.saved[1].name, "rstd");
  EXPECT_EQ(n.saved[1].tensor.shape(), Shape{6});
}

TEST_F(TapeTest, SplitWritesPartGradientsIntoOneBuffer) {
  const Tensor x = ctx.tape().watch(make({2, 5}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  const auto parts = split(ctx, x, {2, 2, 1});
  EXPECT_EQ(parts[1].raw(), x.raw() + 2 * sizeof(float)) << "parts share memory";
  const Tensor y = add(ctx, parts[0], parts[1]);  // the last column reaches nothing
  ctx.tape().backward(y, make({2, 2}, {1, 2, 3, 4}));
  EXPECT_EQ(read(ctx.tape().grad(x)), (std::vector<float>{1, 2, 1, 2, 0, 3, 4, 3, 4, 0}));
}

TEST_F(TapeTest, SplitBesideAnotherUseOfTheWhole) {
  const Tensor x = ctx.tape().watch(make({1, 4}, {1, 2, 3, 4}));
  const auto parts = split(ctx, x, {2, 2});
  const Tensor both = add(ctx, parts[0], parts[1]);       // [1, 2]
  const Tensor y = add(ctx, x, x);                        // [1, 4]
  ctx.tape().backward(y, make({1, 4}, {1, 1, 1, 1}), 2);  // stop above the split's user
  ctx.tape().backward(both, make({1, 2}, {10, 20}));
  EXPECT_EQ(read(ctx.tape().grad(x)), (std::vector<float>{12, 22, 12, 22}));
}

TEST_F(TapeTest, RecomputeGivesTheSameGradient) {
  auto span = [this](const Tensor& t) { return swiglu(ctx, t, add(ctx, t, t)); };
  auto grad_of = [&](auto f) {
    ctx.tape().reset();
    const Tensor x = ctx.tape().watch(make({1, 3}, {0.5f, -1, 2}));
    ctx.tape().backward(f(x), ones({1, 3}));
    return read(ctx.tape().grad(x));
  };
  const auto plain = grad_of(span);
  EXPECT_EQ(grad_of([&](const Tensor& x) { return recompute(ctx, x, span); }), plain);
  const auto nested = [&](const Tensor& x) {
    return recompute(ctx, x, [&](const Tensor& t) { return recompute(ctx, t, span); });
  };
  EXPECT_EQ(grad_of(nested), plain);
}

TEST_F(TapeTest, RecomputeKeepsOnlyItsInput) {
  const Tensor x = ctx.tape().watch(ones({32, 32}));
  const std::size_t before = ctx.allocator().stats().live_total;
  const Tensor y = recompute(ctx, x, [this](const Tensor& t) {
    Tensor h = t;
    for (int i = 0; i < 5; ++i) h = swiglu(ctx, h, h);
    return h;
  });
  EXPECT_EQ(ctx.allocator().stats().live_total, before + 32 * 32 * sizeof(float)) << "only the output is new";
  ASSERT_EQ(ctx.tape().size(), 1);
  EXPECT_STREQ(ctx.tape().nodes()[0].op, "recompute");
}

TEST_F(TapeTest, ASpanThatChangesItsMindIsAnError) {
  const Tensor x = ctx.tape().watch(ones({1, 2}));
  bool second = false;
  const Tensor y = recompute(ctx, x, [&](const Tensor& t) {
    Tensor h = add(ctx, t, t);
    if (second) h = add(ctx, h, t);
    second = true;
    return h;
  });
  EXPECT_THROW(ctx.tape().backward(y, ones({1, 2})), Error);
}

TEST_F(TapeTest, ASpanThatRunsAnotherOpTheSecondTimeIsAnError) {
  const Tensor x = ctx.tape().watch(ones({1, 2}));
  bool second = false;
  const Tensor y = recompute(ctx, x, [&](const Tensor& t) {
    const bool now = std::exchange(second, true);
    return now ? swiglu(ctx, t, t) : add(ctx, t, t);
  });
  try {
    ctx.tape().backward(y, ones({1, 2}));
    FAIL() << "the row of one op was taken for another's";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "a recomputed span runs swiglu where it ran add in forward");
  }
}

// What a span had pinned or was noting dies with it: ops that run after the error must not look there.
TEST_F(TapeTest, AnErrorInsideASpanLeavesTheTapeUsable) {
  auto check = [&](int fail_at) {  // 1: the first run, 2: the second
    ctx.tape().reset();
    const Tensor x = ctx.tape().watch(ones({1, 2}));
    int runs = 0;
    auto train = [&] {
      const Tensor y = recompute(ctx, x, [&](const Tensor& t) {
        const Tensor h = add(ctx, t, t);
        if (++runs == fail_at) throw Error("planted");
        return add(ctx, h, t);
      });
      ctx.tape().backward(y, ones({1, 2}));
    };
    EXPECT_THROW(train(), Error);
    EXPECT_FALSE(ctx.tape().replaying());
    EXPECT_EQ(ctx.tape().mode(), GradMode::record);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(read(add(ctx, ones({1, 2}), ones({1, 2})))[0], 2);
  };
  check(1);
  check(2);
}

TEST_F(TapeTest, RecomputeTakesTheVariantForwardTook) {
  const Tensor x = ctx.tape().watch(ones({1, 2}));
  const Tensor y = recompute(ctx, x, [&](const Tensor& t) { return swiglu(ctx, t, ones({1, 2})); });
  ctx.variants().set("swiglu", "no_such_variant");  // would be an error if it were chosen again
  ctx.tape().backward(y, ones({1, 2}));
  EXPECT_NEAR(read(ctx.tape().grad(x))[0], 0.927671, 1e-5);  // silu'(1)
}

TEST_F(TapeTest, WatchAfterOpsIsAnError) {
  const Tensor x = ctx.tape().watch(ones({1, 2}));
  add(ctx, x, x);
  EXPECT_THROW(ctx.tape().watch(ones({1, 2})), Error);
}

class CountingHooks final : public ParamHooks {
 public:
  std::vector<std::string> log;
  void gather(Param& p, DType /*as*/) override { log.push_back("gather " + p.name); }
  void release(Param& p) override { log.push_back("release " + p.name); }
  void grad_begin(Param& p) override { log.push_back("begin " + p.name); }
  void grad_ready(Param& p) override { log.push_back("ready " + p.name); }
};

TEST_F(TapeTest, HooksFireAroundEveryUseAndReadyOncePerMicroStep) {
  ParamStore store;
  Param& w = store.add("w", {2, 2}, {});
  store.materialize(ctx);
  CountingHooks hooks;
  store.set_hooks(&hooks);
  store.begin_step();
  const Tensor x = ctx.tape().watch(ones({1, 2}));
  const Tensor y = linear(ctx, linear(ctx, x, w), w);  // a tied weight: two contributions
  ctx.tape().backward(y, ones({1, 2}));
  const std::vector<std::string> expected = {"gather w", "release w", "gather w",  "release w",  // forward
                                             "gather w", "begin w",   "release w",               // backward
                                             "gather w", "begin w",   "release w", "ready w"};
  EXPECT_EQ(hooks.log, expected);
}

TEST_F(TapeTest, ATiedWeightIsReadyOnlyAfterARecomputedUse) {
  ParamStore store;
  Param& w = store.add("w", {2, 2}, {});
  store.materialize(ctx);
  CountingHooks hooks;
  store.set_hooks(&hooks);
  store.begin_step();
  const Tensor x = ctx.tape().watch(ones({1, 2}));
  const Tensor h = recompute(ctx, x, [&](const Tensor& t) { return linear(ctx, t, w); });
  ctx.tape().backward(linear(ctx, h, w), ones({1, 2}));
  EXPECT_EQ(std::count(hooks.log.begin(), hooks.log.end(), "ready w"), 1);
  EXPECT_EQ(hooks.log.back(), "ready w");
}

// The loss may pass an op or a span by; the weight's other use must not wait for them forever.
TEST_F(TapeTest, ATiedWeightDoesNotWaitForUsesTheLossDoesNotReach) {
  ParamStore store;
  Param& w = store.add("w", {2, 2}, {});
  store.materialize(ctx);
  CountingHooks hooks;
  store.set_hooks(&hooks);
  store.begin_step();
  const Tensor x = ctx.tape().watch(ones({1, 2}));
  const Tensor y = linear(ctx, x, w);
  const Tensor plain = linear(ctx, x, w);
  const Tensor span = recompute(ctx, x, [&](const Tensor& t) { return linear(ctx, t, w); });
  ctx.tape().backward(y, ones({1, 2}));
  EXPECT_EQ(std::count(hooks.log.begin(), hooks.log.end(), "ready w"), 1);
}

TEST_F(TapeTest, ViewsOfAPackedWeightFillItsGradient) {
  ParamStore store;
  Param& packed = store.add_packed("ab", {{"a", 0, 1, {}}, {"b", 1, 2, {}}}, 2);
  store.materialize(ctx);
  const std::vector<float> earlier(6, 9.0f);
  ctx.upload(packed.grad, earlier.data());
  store.begin_step();
  const Tensor x = ctx.tape().watch(make({1, 2}, {3, 5}));
  const Tensor y = linear(ctx, x, ParamRef::view(packed, 1));
  ctx.tape().backward(y, make({1, 2}, {1, 10}));
  store.finish_gradients(ctx);  // view a had no use: its rows are zero, not what was there before
  EXPECT_EQ(read(packed.grad), (std::vector<float>{0, 0, 3, 5, 30, 50}));
}

TEST_F(TapeTest, MixingAPackedWeightWithPartOfItIsAnError) {
  ParamStore store;
  Param& packed = store.add_packed("ab", {{"a", 0, 1, {}}, {"b", 1, 1, {}}}, 2);
  store.materialize(ctx);
  store.begin_step();
  const Tensor x = ctx.tape().watch(ones({1, 2}));
  const Tensor part = linear(ctx, x, ParamRef::view(packed, 0));
  const Tensor whole = linear(ctx, x, packed);
  EXPECT_THROW(
      {
        ctx.tape().backward(whole, ones({1, 2}), 1);
        ctx.tape().backward(part, ones({1, 1}));  // inside what is touched: adds
        store.begin_step();
        ctx.tape().reset();
        const Tensor z = ctx.tape().watch(ones({1, 2}));
        const Tensor w = linear(ctx, z, packed);
        const Tensor p = linear(ctx, z, ParamRef::view(packed, 0));
        ctx.tape().backward(p, ones({1, 1}), 1);
        ctx.tape().backward(w, ones({1, 2}));  // half of it is touched
      },
      Error);
}

TEST_F(TapeTest, AFrozenWeightGetsNoGradientAndNoHook) {
  ParamStore store;
  Param& w = store.add("w", {2, 2}, {});
  w.trainable = false;
  store.materialize(ctx);
  CountingHooks hooks;
  store.set_hooks(&hooks);
  store.begin_step();
  const Tensor before = ctx.clone(store.grads());
  const Tensor x = ctx.tape().watch(ones({1, 2}));
  ctx.tape().backward(linear(ctx, x, w), ones({1, 2}));
  EXPECT_EQ(std::count(hooks.log.begin(), hooks.log.end(), "ready w"), 0);
  EXPECT_EQ(read(store.grads()), read(before));
  EXPECT_TRUE(store.spans().empty());
}

}  // namespace
}  // namespace kiln
