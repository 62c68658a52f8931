#include "autograd/param_store.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/tape.h"
#include "model/llama.h"

namespace kiln {
namespace {

RankOptions rank_of(int rank, int world, uint64_t seed = 5) {
  RankOptions o;
  o.rank = rank;
  o.world = world;
  o.threads = 1;
  o.seed = seed;
  return o;
}

std::vector<float> floats(const Tensor& t) { return {t.data<float>(), t.data<float>() + t.numel()}; }

ModelConfig small_model() {
  ModelConfig c;
  c.vocab = 37;
  c.d_model = 20;
  c.d_ff = 28;
  c.heads = 5;
  c.kv_heads = 1;
  c.layers = 2;
  return c;
}

TEST(ParamStore, ArenaIsInReverseExecutionOrderAndPadded) {
  for (int world : {1, 2, 3}) {
    RankContext ctx(rank_of(0, world));
    Llama model(small_model());
    model.params().materialize(ctx);
    int64_t at = 0;
    const auto& params = model.params().params();
    for (auto p = params.rbegin(); p != params.rend(); ++p) {
      EXPECT_EQ(p->offset, at);
      EXPECT_GE(p->padded, p->shape.numel());
      EXPECT_EQ(p->padded * 4 % (world * 16), 0);
      at += p->padded;
    }
    EXPECT_EQ(model.params().total(), at);
    EXPECT_EQ(params.front().name, "model.embed_tokens.weight");
    EXPECT_EQ(params.back().name, "lm_head.weight");
  }
}

TEST(ParamStore, NamesAreHuggingFaces) {
  Llama model(small_model());
  std::vector<std::string> names;
  for (const Param& p : model.params().params()) {
    for (const ParamView& v : p.views) names.push_back(v.name);
  }
  const std::vector<std::string> layer = {
      "input_layernorm.weight",  "self_attn.q_proj.weight", "self_attn.k_proj.weight",
      "self_attn.v_proj.weight", "self_attn.o_proj.weight", "post_attention_layernorm.weight",
      "mlp.gate_proj.weight",    "mlp.up_proj.weight",      "mlp.down_proj.weight"};
  std::vector<std::string> expected = {"model.embed_tokens.weight"};
  for (int l : {0, 1}) {
    for (const std::string& n : layer) expected.push_back(cat("model.layers.", l, ".", n));
  }
  expected.insert(expected.end(), {"model.norm.weight", "lm_head.weight"});
  EXPECT_EQ(names, expected);
}

TEST(ParamStore, InitialValuesDependOnNameAndSeedOnly) {
  RankContext a(rank_of(0, 1)), b(rank_of(0, 3)), other(rank_of(0, 1, 6));
  Llama ma(small_model()), mb(small_model()), mo(small_model());
  ma.params().materialize(a);
  mb.params().materialize(b);
  mo.params().materialize(other);
  const auto& pa = ma.params().params();
  for (std::size_t i = 0; i < pa.size(); ++i) {
    EXPECT_EQ(floats(pa[i].value), floats(mb.params().params()[i].value)) << pa[i].name;
  }
  EXPECT_NE(floats(ma.params().values()), floats(mo.params().values()));
}

TEST(ParamStore, ShardsPutTogetherAreTheWhole) {
  RankContext whole(rank_of(0, 1));
  Llama reference(small_model());
  reference.params().materialize(whole);
  const int world = 3;
  std::vector<std::unique_ptr<RankContext>> ranks;
  std::vector<std::unique_ptr<Llama>> models;
  for (int r = 0; r < world; ++r) {
    ranks.push_back(std::make_unique<RankContext>(rank_of(r, world)));
    models.push_back(std::make_unique<Llama>(small_model()));
    models[r]->params().materialize(*ranks[r], {Precision::fp32, true});
  }
  for (std::size_t i = 0; i < reference.params().params().size(); ++i) {
    std::vector<float> joined;
    const Param& p = reference.params().params()[i];
    for (int r = 0; r < world; ++r) {
      const Param& mine = models[r]->params().params()[i];
      const auto piece = floats(models[r]->params().local_value(mine));
      EXPECT_EQ(mine.shards, p.shape.rank() == 2 ? world : 1) << p.name;
      if (mine.shards == 1) joined.clear();  // whole on every rank
      joined.insert(joined.end(), piece.begin(), piece.end());
    }
    joined.resize(static_cast<std::size_t>(p.shape.numel()));
    EXPECT_EQ(joined, floats(p.value)) << p.name;
  }
  models.clear();
}

TEST(ParamStore, InitialSpreadIsAsAsked) {
  RankContext ctx(rank_of(0, 1));
  ParamStore store;
  store.add("w", {300, 400}, {ParamInit::Kind::normal, 0.05f, 3});
  store.materialize(ctx);
  double sum = 0, squares = 0, top = 0;
  const auto values = floats(store.params()[0].value);
  for (double v : values) {
    sum += v;
    squares += v * v;
    top = std::max(top, std::abs(v));
  }
  const double n = static_cast<double>(values.size());
  EXPECT_NEAR(sum / n, 0, 5e-4);
  EXPECT_NEAR(std::sqrt(squares / n), 0.05 * 0.98658, 5e-4);  // a normal cut at 3 sigma spreads 0.98658 sigma
  EXPECT_LE(top, 0.15f + 1e-6);
}

TEST(ParamStore, SplitMastersHoldTheFp32Value) {
  RankContext ctx(rank_of(0, 1));
  Llama narrow(small_model()), wide(small_model());
  narrow.params().materialize(ctx, {Precision::bf16, false});
  wide.params().materialize(ctx);
  for (std::size_t i = 0; i < wide.params().params().size(); ++i) {
    const Param &p = wide.params().params()[i], &q = narrow.params().params()[i];
    const bf16* high = narrow.params().local_value(q).data<bf16>();
    const int16_t* low = narrow.params().low().narrow(0, q.offset, q.padded).data<int16_t>();
    for (int64_t e = 0; e < p.shape.numel(); ++e) {
      ASSERT_EQ(join_float(high[e], low[e]), p.value.data<float>()[e]) << p.name;
    }
  }
}

TEST(ParamStore, ImpossibleModelsAreRefused) {
  ModelConfig c = small_model();
  c.heads = 3;
  EXPECT_THROW(Llama{c}, Error);
  c = small_model();
  c.kv_heads = 2;
  EXPECT_THROW(Llama{c}, Error);
  c = small_model();
  c.layers = 0;
  EXPECT_THROW(Llama{c}, Error);
}

TEST(ParamStore, ForInferenceItHoldsValuesAndNothingElse) {
  RankContext ctx{RankOptions{}};
  Llama model{ModelConfig{}};
  model.params().materialize(ctx, {.precision = Precision::bf16, .inference = true});
  const MemoryStats stats = ctx.allocator().stats();
  EXPECT_EQ(stats.peak[Tag::grad] + stats.peak[Tag::master], 0U);
  EXPECT_GE(stats.peak[Tag::param], static_cast<std::size_t>(model.params().total()) * 2);
  EXPECT_THROW(model.params().spans(), Error);

  const Tensor tokens = ctx.zeros({1, 4}, DType::i32);
  const Tensor loss = model.loss(ctx, tokens, tokens);
  EXPECT_THROW(ctx.tape().backward(loss, ctx.zeros(loss.shape(), loss.dtype())), Error);
  ctx.tape().reset();
}

}  // namespace
}  // namespace kiln
