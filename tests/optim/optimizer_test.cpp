// The optimizers over a parameter store: what is adjacent goes in one call, what is frozen stays as it is.
#include <gtest/gtest.h>

#include "ops/step_scalars/step_scalars.h"
#include "optim/optimizers.h"

namespace kiln {
namespace {

class CountCalls final : public OpObserver {
 public:
  explicit CountCalls(RankContext& ctx) : ctx_(ctx) { ctx.add_observer(this); }
  ~CountCalls() override { ctx_.remove_observer(this); }
  void on_op_end(RankContext&, const OpEvent& e) override {
    EXPECT_TRUE(e.op == std::string_view("adamw") || e.op == std::string_view("sgd"));
    ++calls;
  }
  int calls = 0;

 private:
  RankContext& ctx_;
};

struct Model {
  explicit Model(RankContext& ctx, Precision precision = Precision::fp32) {
    for (int i = 0; i < 5; ++i) params.push_back(&store.add(cat("p", i), {7 + i, 5}, {}, i % 2 == 0));
    params[2]->trainable = false;
    store.materialize(ctx, {precision, false});
    float* g = store.grads().data<float>();
    for (int64_t i = 0; i < store.grads().numel(); ++i) g[i] = static_cast<float>(i % 11) - 5;
    scalars = make_step_scalars(ctx);
    StepScalars s;
    s.lr = 0.1;
    s.step = 1;
    s.rate1_power = 0.9;
    s.rate2_power = 0.999;
    ctx.upload(scalars, &s);
  }
  std::vector<float> value(int i) const {
    const float* v = params[i]->value.data<float>();
    return {v, v + params[i]->value.numel()};
  }
  ParamStore store;
  std::vector<Param*> params;
  Tensor scalars;
};

TEST(Optimizers, AdamWTakesAdjacentParametersInOneCallAndSkipsFrozenOnes) {
  std::vector<std::vector<float>> by_variant[2];
  for (const char* variant : {"fused", "naive"}) {
    RankOptions o;
    o.variants.set("adamw", variant);
    RankContext ctx(o);
    Model model(ctx);
    const std::vector<float> frozen = model.value(2), first = model.value(0);
    AdamWOptimizer optimizer(ctx, model.store.spans(), {.decay = 0.1});
    CountCalls count(ctx);
    optimizer.step(ctx, model.scalars);
    const bool fused = variant == std::string_view("fused");
    EXPECT_EQ(count.calls, fused ? 1 : 4) << "frozen parameters lie behind the others: one piece";
    EXPECT_EQ(model.value(2), frozen);
    EXPECT_NE(model.value(0), first);
    for (int i = 0; i < 5; ++i) by_variant[fused].push_back(model.value(i));
  }
  for (int i = 0; i < 5; ++i) {
    for (std::size_t k = 0; k < by_variant[0][i].size(); ++k)
      ASSERT_NEAR(by_variant[0][i][k], by_variant[1][i][k], 2e-6) << i << " " << k;
  }
}

TEST(Optimizers, SgdMovesWhatIsTrainable) {
  for (double momentum : {0.0, 0.9}) {
    RankContext ctx;
    Model model(ctx);
    const std::vector<float> frozen = model.value(2), before = model.value(4);
    const float gradient = model.params[4]->grad.data<float>()[3];
    SgdOptimizer optimizer(ctx, model.store.spans(), {.momentum = momentum, .decay = 0.01});
    EXPECT_EQ(optimizer.state("momentum").defined(), momentum != 0);
    optimizer.step(ctx, model.scalars);
    EXPECT_EQ(model.value(2), frozen);
    EXPECT_NEAR(model.value(4)[3], before[3] - 0.1f * (gradient + 0.01f * before[3]), 1e-6);
  }
}

TEST(Optimizers, AreMadeByNameAndNameTheirState) {
  RankContext ctx;
  Model model(ctx);
  int64_t elements = 0;
  for (const ParamSpan& s : model.store.spans()) elements += s.value.numel();
  const auto states_of = [&](const OptimizerOptions& options) {
    const auto optimizer = make_optimizer(options, ctx, model.store.spans());
    std::vector<std::string_view> names;
    for (const OptimizerState& s : optimizer->state()) {
      names.push_back(s.name);
      EXPECT_EQ(s.values.numel(), elements) << s.name;
    }
    return names;
  };
  using Names = std::vector<std::string_view>;
  EXPECT_EQ(optimizer_names(), (Names{"adamw", "sgd"}));
  EXPECT_EQ(states_of({}), (Names{"m", "v"}));
  EXPECT_EQ(states_of({.name = "sgd", .adamw = {}, .sgd = {.momentum = 0}}), Names());
  EXPECT_EQ(states_of({.name = "sgd"}), Names{"momentum"});
  EXPECT_FALSE(make_optimizer({}, ctx, model.store.spans())->state("momentum").defined());
  try {
    check_optimizer("adam");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::usage);
    EXPECT_EQ(cat(e.what(), " | ", e.hint()),
              "--optimizer is 'adam'; expected one of: adamw, sgd | did you mean 'adamw'?");
  }
}

}  // namespace
}  // namespace kiln
