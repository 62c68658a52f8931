#include "model/llama.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/tape.h"
#include "model/weight_source.h"
#include "support/tiny_run.h"

namespace kiln {
namespace {

std::vector<float> logits_of(RankContext& ctx, const Llama& model, const std::vector<int32_t>& tokens) {
  GradModeGuard off(ctx, GradMode::off);
  const Tensor ids = ctx.empty({1, static_cast<int64_t>(tokens.size())}, DType::i32);
  ctx.upload(ids, tokens.data());
  const Tensor out = model.logits(ctx, ids);
  std::vector<float> values(static_cast<std::size_t>(out.numel()));
  ctx.download(values.data(), out);
  return values;
}

TEST(Llama, ATokenSeesItselfAndThoseBeforeIt) {
  RankContext ctx{RankOptions{}};
  const TinyRun run;
  Llama model(run.model);
  model.params().materialize(ctx);
  const std::vector<int32_t> tokens = {4, 8, 15, 16, 23, 42};
  const auto vocab = static_cast<std::size_t>(run.model.vocab);
  const auto before = logits_of(ctx, model, tokens);
  for (std::size_t changed = 0; changed < tokens.size(); ++changed) {
    auto other = tokens;
    other[changed] = 60;
    const auto after = logits_of(ctx, model, other);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const bool same =
          std::equal(before.begin() + t * vocab, before.begin() + (t + 1) * vocab, after.begin() + t * vocab);
      EXPECT_EQ(same, t < changed) << "token " << changed << " changed, logits of token " << t;
    }
  }
}

// Its attention is wider than the model, and trains all the same, in each form of the same bits.
TEST(Llama, AHeadMayBeWiderThanItsShareOfTheModel) {
  TinyRun run;
  run.model.head_width = 8;  // 6 heads of 8, and d_model 24
  run.steps = 6;
  const std::vector<WeightSpec> specs = weight_specs(run.model);
  const auto shape_of = [&](const std::string& name) {
    for (const WeightSpec& w : specs) {
      if (w.name == "model.layers.0.self_attn." + name + ".weight") return w.shape;
    }
    return Shape{};
  };
  EXPECT_EQ(shape_of("q_proj"), (Shape{48, 24}));
  EXPECT_EQ(shape_of("k_proj"), (Shape{16, 24}));
  EXPECT_EQ(shape_of("o_proj"), (Shape{24, 48}));
  RankOptions options;
  options.threads = 1;
  const TinyResult fused = train_tiny(options, run);
  EXPECT_LT(fused.losses.back(), fused.losses.front());
  run.model.fused_qkv = false;
  const TinyResult split = train_tiny(options, run);
  EXPECT_NEAR(split.losses.back(), fused.losses.back(), 1e-4);
}

TEST(Llama, OnlyMatricesDecay) {
  const TinyRun run;
  Llama model(run.model);
  for (const Param& p : model.params().params()) EXPECT_EQ(p.decay, p.shape.rank() == 2) << p.name;
}

TEST(Llama, InitialSpreadsOfItsMatrices) {
  for (bool tied : {false, true}) {
    TinyRun run;
    run.model.vocab = 500;
    run.model.tied = tied;
    RankContext ctx{RankOptions{}};
    Llama model(run.model);
    model.params().materialize(ctx);
    const double C = static_cast<double>(run.model.d_model), F = static_cast<double>(run.model.d_ff);
    const double cut = 0.98658;  // what is left of sigma when a normal is cut at 3 sigma
    const double kv = static_cast<double>(run.model.kv_heads * run.model.head_dim());
    const std::vector<std::pair<std::string, double>> wanted = {
        {"model.embed_tokens.weight", tied ? 0.02 : 1.0},
        {"model.layers.0.self_attn.q_proj.weight", std::sqrt(2 / (C + C))},
        {"model.layers.0.self_attn.k_proj.weight", std::sqrt(2 / (C + kv))},
        {"model.layers.0.mlp.up_proj.weight", std::sqrt(2 / (C + F))},
        {"model.layers.0.mlp.down_proj.weight", std::sqrt(2 / (F + C))},
    };
    for (const auto& [name, std_dev] : wanted) {
      bool found = false;
      for (const Param& p : model.params().params()) {
        for (const ParamView& v : p.views) {
          if (v.name != name) continue;
          found = true;
          const Tensor rows = p.value.narrow(0, v.row_begin, v.rows);
          double squares = 0;
          for (int64_t i = 0; i < rows.numel(); ++i) squares += std::pow(rows.data<float>()[i], 2);
          EXPECT_NEAR(std::sqrt(squares / static_cast<double>(rows.numel())) / (cut * std_dev), 1, 0.15)
              << name;
        }
      }
      EXPECT_TRUE(found) << name;
    }
  }
}

}  // namespace
}  // namespace kiln
