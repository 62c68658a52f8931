// Optimizers, and what a step does before them, against values PyTorch computed (tests/golden,
// tools/make_golden.py).
#include "ops/adamw/adamw.h"
#include "ops/golden_file.h"
#include "ops/sgd/sgd.h"

namespace kiln {
namespace {

// An optimizer's file: the first weights, the gradient of every step, the weights after every step. `update`
// gets the weights, the gradient, the step's record and two zeroed states to keep.
using Update = void (*)(RankContext&, const Json& options, const Tensor& weight, const Tensor& grad,
                        const Tensor& scalars, const Tensor (&state)[2], std::string_view variant);

void expect_golden_updates(const char* op, Update update) {
  for (const Json& page : read_cases(op)) {
    const Json &o = page.at("options"), &inputs = page.at("inputs");
    for (const char* variant : {"naive", ""}) {
      RankContext ctx;
      auto upload = [&](const Json& tensor) {
        const auto values = tensor.at("data").get<std::vector<float>>();
        Tensor t = ctx.empty({static_cast<int64_t>(values.size())}, DType::f32);
        ctx.upload(t, values.data());
        return t;
      };
      const Tensor w = upload(inputs.at("weight")), scalars = make_step_scalars(ctx);
      const Tensor state[2] = {ctx.zeros(w.shape(), DType::f32), ctx.zeros(w.shape(), DType::f32)};
      for (int step = 1; step <= o.at("steps").get<int>(); ++step) {
        StepScalars s;
        s.lr = o.at("lr").get<double>();
        s.step = step;
        s.rate1_power = std::pow(o.value("beta1", 0.0), step);
        s.rate2_power = std::pow(o.value("beta2", 0.0), step);
        ctx.upload(scalars, &s);
        update(ctx, o, w, upload(inputs.at(cat("grad", step))), scalars, state, variant);
        std::vector<float> got(static_cast<std::size_t>(w.numel()));
        ctx.download(got.data(), w);
        expect_near({got.begin(), got.end()}, numbers(page.at("outputs").at(cat("weight", step))), kForward,
                    cat(page.at("name"), " step ", step, " ", variant));
      }
    }
  }
}

TEST(GoldenUpdate, AdamW) {
  expect_golden_updates(
      "adamw", [](RankContext& ctx, const Json& o, const Tensor& w, const Tensor& g, const Tensor& scalars,
                  const Tensor(&state)[2], std::string_view variant) {
        adamw(ctx, {w, Tensor(), g, state[0], state[1]}, scalars, o.at("beta1").get<double>(),
              o.at("beta2").get<double>(), o.at("eps").get<double>(), o.at("decay").get<double>(), variant);
      });
}

TEST(GoldenUpdate, Sgd) {
  expect_golden_updates("sgd", [](RankContext& ctx, const Json& o, const Tensor& w, const Tensor& g,
                                  const Tensor& scalars, const Tensor(&state)[2], std::string_view variant) {
    const double momentum = o.at("momentum").get<double>();
    sgd(ctx, w, Tensor(), g, momentum == 0 ? Tensor() : state[0], scalars, momentum,
        o.at("decay").get<double>(), variant);
  });
}

// The step's record after `work` has run on it.
template <class F>
StepScalars record_after(RankContext& ctx, const StepScalars& before, F work) {
  const Tensor scalars = make_step_scalars(ctx);
  ctx.upload(scalars, &before);
  work(scalars);
  StepScalars after;
  ctx.download(&after, scalars);
  return after;
}

Tensor uploaded(RankContext& ctx, const std::vector<float>& values) {
  Tensor t = ctx.empty({static_cast<int64_t>(values.size())}, DType::f32);
  ctx.upload(t, values.data());
  return t;
}

TEST(GoldenUpdate, AccumulateLoss) {
  for (const Json& page : read_cases("accumulate_loss")) {
    RankContext ctx;
    StepScalars s;
    s.loss = 77;  // of the step before
    std::vector<double> got;
    for (double loss : numbers(page.at("inputs").at("losses"))) {
      const Tensor one = uploaded(ctx, {static_cast<float>(loss)});
      s = record_after(ctx, s, [&](const Tensor& scalars) {
        accumulate_loss(ctx, one, scalars, got.empty(), page.at("options").at("weight").get<double>());
      });
      got.push_back(s.loss);
    }
    expect_near(got, numbers(page.at("outputs").at("loss")), kForward, page.at("name").text());
  }
}

TEST(GoldenUpdate, SquareSum) {
  for (const Json& page : read_cases("square_sum")) {
    for (const char* variant : {"naive", "fused"}) {
      RankContext ctx;
      const Tensor grads = uploaded(ctx, page.at("inputs").at("grads").at("data").get<std::vector<float>>());
      const StepScalars s =
          record_after(ctx, {}, [&](const Tensor& scalars) { square_sum(ctx, grads, scalars, variant); });
      expect_near({s.square_sum}, numbers(page.at("outputs").at("square_sum")), kForward,
                  cat(page.at("name"), " ", variant));
    }
  }
}

TEST(GoldenUpdate, FinishStepScalars) {
  for (const Json& page : read_cases("finish_step_scalars")) {
    RankContext ctx;
    StepScalars before;
    for (double g : numbers(page.at("inputs").at("grads"))) before.square_sum += g * g;
    const StepScalars s = record_after(ctx, before, [&](const Tensor& scalars) {
      finish_step_scalars(ctx, scalars, page.at("options").at("max_norm").get<double>(), {0.9, 0.999});
    });
    expect_near({s.grad_norm}, numbers(page.at("outputs").at("norm")), kForward, page.at("name").text());
    expect_near({s.clip}, numbers(page.at("outputs").at("clip")), kForward, page.at("name").text());
  }
}

}  // namespace
}  // namespace kiln
