// Decoding with a cache against the same model's plain forward: the logits of every position, for prompts of
// several lengths, one sequence and several, shared heads, fp32 and bf16.
#include "model/kv_cache.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/tape.h"
#include "model/hf_folder.h"
#include "model/llama.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

ModelConfig small_config(int64_t kv_heads) {
  ModelConfig c;
  c.vocab = 61;
  c.d_model = 48;
  c.d_ff = 72;
  c.layers = 3;
  c.heads = 4;
  c.kv_heads = kv_heads;
  return c;
}

std::vector<int32_t> some_tokens(int64_t count, int64_t vocab) {
  std::vector<int32_t> ids(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>((i * i * 7 + i * 3 + 11) % static_cast<std::size_t>(vocab));
  return ids;
}

struct Loaded {
  RankContext ctx;
  Llama model;
  Loaded(const ModelConfig& c, Precision precision, const RankOptions& options = {})
      : ctx(options), model(c) {
    model.params().materialize(ctx, {.precision = precision, .inference = true});
    if (ctx.device().is_meta()) return;
    RandomWeights weights(ctx);
    load_weights(weights, c, RopeLayout::halves, ctx, model.params());
  }

  std::vector<float> floats(const Tensor& t) {
    std::vector<float> values;
    with_float(t.dtype(), [&](auto zero) {
      std::vector<decltype(zero)> raw(static_cast<std::size_t>(t.numel()));
      ctx.download(raw.data(), t);
      for (const auto x : raw) values.push_back(static_cast<float>(x));
    });
    return values;
  }
  // Of tokens [begin, end) of every sequence.
  Tensor ids(const std::vector<int32_t>& tokens, int64_t B, int64_t begin, int64_t end) {
    const auto T = static_cast<int64_t>(tokens.size()) / B;
    std::vector<int32_t> rows;
    for (int64_t b = 0; b < B; ++b)
      rows.insert(rows.end(), tokens.begin() + b * T + begin, tokens.begin() + b * T + end);
    Tensor t = ctx.empty({B, end - begin}, DType::i32);
    ctx.upload(t, rows.data());
    return t;
  }
  std::vector<float> forward(const std::vector<int32_t>& tokens, int64_t B, int64_t begin, int64_t end) {
    const GradModeGuard off(ctx, GradMode::off);
    return floats(model.logits(ctx, ids(tokens, B, begin, end)));  // [B, T, V]
  }
};

// The largest distance from the last row of `logits` [B, V] to row `t` of `all` [B, T, V].
double distance(const std::vector<float>& logits, const std::vector<float>& all, int64_t B, int64_t t) {
  const std::size_t V = logits.size() / static_cast<std::size_t>(B);
  const std::size_t T = all.size() / logits.size();
  double most = 0;
  for (std::size_t b = 0; b < static_cast<std::size_t>(B); ++b) {
    for (std::size_t v = 0; v < V; ++v) {
      const double d = std::abs(static_cast<double>(logits[b * V + v]) -
                                static_cast<double>(all[(b * T + static_cast<std::size_t>(t)) * V + v]));
      most = std::isnan(d) ? INFINITY : std::max(most, d);
    }
  }
  return most;
}

struct Case {
  Precision precision;
  int64_t kv_heads, B, prompt;
};

class Decoding : public testing::TestWithParam<Case> {};

TEST_P(Decoding, GivesTheLogitsOfTheWholeForwardAtEveryPosition) {
  const auto [precision, kv_heads, B, prompt] = GetParam();
  constexpr int64_t T = 41;
  Loaded m(small_config(kv_heads), precision);
  const auto tokens = some_tokens(B * T, m.model.config().vocab);
  const auto wanted = m.forward(tokens, B, 0, T);
  double size = 0;
  for (const float x : wanted) size = std::max(size, std::abs(static_cast<double>(x)));
  const double allowed = (precision == Precision::fp32 ? 1e-5 : 4e-2) * size;

  KvCache cache(m.ctx, m.model.config(), m.model.dtype(), B, T);
  int64_t end = prompt;
  for (int64_t begin = 0; begin < T; begin = end, ++end) {
    const auto logits = m.floats(m.model.decode(m.ctx, m.ids(tokens, B, begin, end), cache));
    ASSERT_EQ(cache.length(), end);
    EXPECT_LE(distance(logits, wanted, B, end - 1), allowed) << "position " << end - 1;
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    for (const int64_t kv_heads : {4, 2, 1}) {
      for (const int64_t B : {1, 3}) {
        for (const int64_t prompt : {1, 7, 33}) cases.push_back({precision, kv_heads, B, prompt});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, Decoding, testing::ValuesIn(all_cases()), [](const auto& info) {
  const Case& c = info.param;
  return cat(c.precision == Precision::fp32 ? "fp32" : "bf16", "_kv", c.kv_heads, "_B", c.B, "_prompt",
             c.prompt);
});

TEST(KvCache, ChunksOfAnyLengthGiveTheSame) {
  constexpr int64_t T = 20;
  Loaded m(small_config(2), Precision::fp32);
  const auto tokens = some_tokens(T, m.model.config().vocab);
  const auto wanted = m.forward(tokens, 1, 0, T);
  KvCache cache(m.ctx, m.model.config(), m.model.dtype(), 1, T);
  std::vector<float> logits;
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 5}, {5, 6}, {6, 17}, {17, 20}})
    logits = m.floats(m.model.decode(m.ctx, m.ids(tokens, 1, begin, end), cache));
  EXPECT_LE(distance(logits, wanted, 1, T - 1), 1e-5);
}

TEST(KvCache, ClearedItBeginsANewText) {
  constexpr int64_t T = 24, begin = 9;
  Loaded m(small_config(2), Precision::fp32);
  const auto tokens = some_tokens(T, m.model.config().vocab);
  KvCache cache(m.ctx, m.model.config(), m.model.dtype(), 1, T);
  (void)m.model.decode(m.ctx, m.ids(tokens, 1, 0, T), cache);
  cache.clear();
  const auto wanted = m.forward(tokens, 1, begin, T);
  (void)m.model.decode(m.ctx, m.ids(tokens, 1, begin, T - 1), cache);
  const auto logits = m.floats(m.model.decode(m.ctx, m.ids(tokens, 1, T - 1, T), cache));
  EXPECT_LE(distance(logits, wanted, 1, T - 1 - begin), 1e-5);
}

TEST(KvCache, EveryVariantOfAttentionReadsIt) {
  constexpr int64_t T = 8, B = 2;
  for (const char* variant : {"small_m", "flash", "naive", "composed"}) {
    Loaded m(small_config(2), Precision::fp32);
    m.ctx.variants().set("attention", variant);
    const auto tokens = some_tokens(B * T, m.model.config().vocab);
    const auto wanted = m.forward(tokens, B, 0, T);
    KvCache cache(m.ctx, m.model.config(), m.model.dtype(), B, T + 5);
    (void)m.model.decode(m.ctx, m.ids(tokens, B, 0, T - 1), cache);
    const auto logits = m.floats(m.model.decode(m.ctx, m.ids(tokens, B, T - 1, T), cache));
    EXPECT_LE(distance(logits, wanted, B, T - 1), 1e-5) << variant;
  }
}

TEST(KvCache, RecomputeAndUnpackedProjectionsDecodeToo) {
  constexpr int64_t T = 9;
  ModelConfig c = small_config(2);
  c.recompute = Recompute::nested;
  c.fused_qkv = c.fused_gate_up = false;
  c.tied = true;
  Loaded m(c, Precision::fp32);
  const auto tokens = some_tokens(T, c.vocab);
  const auto wanted = m.forward(tokens, 1, 0, T);
  KvCache cache(m.ctx, c, m.model.dtype(), 1, T);
  (void)m.model.decode(m.ctx, m.ids(tokens, 1, 0, 4), cache);
  const auto logits = m.floats(m.model.decode(m.ctx, m.ids(tokens, 1, 4, T), cache));
  EXPECT_LE(distance(logits, wanted, 1, T - 1), 1e-5);
}

TEST(KvCache, RefusesWhatDoesNotFitAndStaysAsItWas) {
  Loaded m(small_config(4), Precision::fp32);
  KvCache cache(m.ctx, m.model.config(), m.model.dtype(), 1, 4);
  const auto tokens = some_tokens(6, m.model.config().vocab);
  (void)m.model.decode(m.ctx, m.ids(tokens, 1, 0, 3), cache);
  const std::string why = KILN_ERROR_OF(m.model.decode(m.ctx, m.ids(tokens, 1, 3, 5), cache));
  EXPECT_NE(why.find("holds 3 of at most 4 tokens; 2 more do not fit"), std::string::npos) << why;
  EXPECT_EQ(cache.length(), 3);
  (void)m.model.decode(m.ctx, m.ids(tokens, 1, 3, 4), cache);
  EXPECT_EQ(cache.length(), 4);
  EXPECT_NE(KILN_ERROR_OF(m.model.decode(m.ctx, m.ids(tokens, 2, 0, 1), cache)), "nothing");  // two sequences
  EXPECT_NE(KILN_ERROR_OF(KvCache(m.ctx, m.model.config(), DType::f32, 1, 0)), "nothing");
  KvCache wide(m.ctx, m.model.config(), DType::bf16, 1, 4);
  EXPECT_NE(KILN_ERROR_OF(m.model.decode(m.ctx, m.ids(tokens, 1, 0, 1), wide)), "nothing");
}

TEST(KvCache, ItsSizeIsKnownBeforehandAndMetaDecodesWithoutData) {
  const ModelConfig c = small_config(2);
  const std::size_t bytes = KvCache::bytes(c, DType::bf16, 3, 50);
  EXPECT_EQ(bytes, 2u * 3 * 3 * 50 * (2 * 12) * 2);
  for (const DeviceType target : {DeviceType::cpu, DeviceType::cuda}) {
    RankOptions options;
    options.device = Device::meta(target);
    Loaded m(c, Precision::bf16, options);
    const std::size_t before = m.ctx.allocator().stats().live[Tag::activation];
    KvCache cache(m.ctx, c, m.model.dtype(), 3, 50);
    const std::size_t taken = m.ctx.allocator().stats().live[Tag::activation] - before;
    EXPECT_GE(taken, bytes);
    EXPECT_LT(taken, bytes + 2048);  // whole blocks
    const std::vector<int32_t> tokens(3 * 50);
    (void)m.model.decode(m.ctx, m.ids(tokens, 3, 0, 49), cache);
    const Tensor logits = m.model.decode(m.ctx, m.ids(tokens, 3, 49, 50), cache);
    EXPECT_EQ(logits.shape(), (Shape{3, c.vocab}));
    EXPECT_EQ(cache.length(), 50);
  }
}

}  // namespace
}  // namespace kiln
