// Optimizers against values PyTorch computed (tests/golden, tools/make_golden.py).
#include "ops/adamw/adamw.h"
#include "ops/golden_file.h"
#include "ops/sgd/sgd.h"

namespace kiln {
namespace {

// An optimizer's file: the first weights, the gradient of every step, the weights after every step. `update`
// gets the weights, the gradient, the step's record and two zeroed states to keep.
using Update = void (*)(RankContext&, const json& options, const Tensor& weight, const Tensor& grad,
                        const Tensor& scalars, const Tensor (&state)[2], std::string_view variant);

void expect_golden_updates(const char* op, Update update) {
  for (const json& page : read_cases(op)) {
    const json &o = page.at("options"), &inputs = page.at("inputs");
    for (const char* variant : {"naive", ""}) {
      RankContext ctx;
      auto upload = [&](const json& tensor) {
        const auto values = tensor.at("data").get<std::vector<float>>();
        Tensor t = ctx.empty({static_cast<int64_t>(values.size())}, DType::f32);
        ctx.upload(t, values.data());
        return t;
      };
      const Tensor w = upload(inputs.at("weight")), scalars = make_step_scalars(ctx);
      const Tensor state[2] = {ctx.zeros(w.shape(), DType::f32), ctx.zeros(w.shape(), DType::f32)};
      for (int step = 1; step <= o.at("steps").get<int>(); ++step) {
        StepScalars s;
        s.lr = o.at("lr");
        s.step = step;
        s.beta1_power = std::pow(o.value("beta1", 0.0), step);
        s.beta2_power = std::pow(o.value("beta2", 0.0), step);
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
      "adamw", [](RankContext& ctx, const json& o, const Tensor& w, const Tensor& g, const Tensor& scalars,
                  const Tensor(&state)[2], std::string_view variant) {
        adamw(ctx, {w, Tensor(), g, state[0], state[1]}, scalars, o.at("beta1"), o.at("beta2"), o.at("eps"),
              o.at("decay"), variant);
      });
}

TEST(GoldenUpdate, Sgd) {
  expect_golden_updates("sgd", [](RankContext& ctx, const json& o, const Tensor& w, const Tensor& g,
                                  const Tensor& scalars, const Tensor(&state)[2], std::string_view variant) {
    const double momentum = o.at("momentum");
    sgd(ctx, w, Tensor(), g, momentum == 0 ? Tensor() : state[0], scalars, momentum, o.at("decay"), variant);
  });
}

}  // namespace
}  // namespace kiln
