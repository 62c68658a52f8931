// What the ops compute, against their formulas written out here with plain indices in double. The other tests
// of ops compare an op with itself (its slope, its other dtypes, its other devices): they would not see a
// scale, a mask or a group that is wrong everywhere alike.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/tape.h"
#include "base/rng.h"
#include "ops/add/add.h"
#include "ops/attention/attention.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/elementwise/broadcast.h"
#include "ops/elementwise/unary.h"
#include "ops/embedding/embedding.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/linear/linear.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rope/rope.h"
#include "ops/softmax/softmax.h"
#include "ops/swiglu/swiglu.h"
#include "ops/weighted_sum/weighted_sum.h"

namespace kiln {
namespace {

using Values = std::vector<double>;

class Definitions : public testing::Test {
 protected:
  Definitions() : ctx(RankOptions{}) {}

  static Values draw(int64_t count, const char* name, double scale = 1) {
    Values v;
    for (int64_t i = 0; i < count; ++i)
      v.push_back(scale * static_cast<double>(philox_normal(philox_key(5, name), static_cast<uint64_t>(i))));
    return v;
  }
  Tensor tensor(const Shape& shape, const Values& values) {
    const Tensor t = ctx.empty(shape, DType::f64);
    ctx.upload(t, values.data());
    return t;
  }
  Tensor ids(const std::vector<int32_t>& values) {
    const Tensor t = ctx.empty({static_cast<int64_t>(values.size())}, DType::i32);
    ctx.upload(t, values.data());
    return t;
  }
  Param param(const Shape& shape, const Values& values) {
    Param p;
    p.name = "w";
    p.shape = shape;
    p.value = tensor(shape, values);
    return p;
  }
  void expect(const Tensor& got, const Values& wanted) {
    ASSERT_EQ(static_cast<std::size_t>(got.numel()), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(got.data<double>()[i], wanted[i], 1e-12) << i;
  }

  RankContext ctx;
};

TEST_F(Definitions, Add) { expect(add(ctx, tensor({1, 2}, {1, 2}), tensor({1, 2}, {10, 20})), {11, 22}); }

TEST_F(Definitions, LinearMultipliesByTheTransposedWeight) {
  Param w = param({2, 3}, {1, 2, 3, 4, 5, 6});
  expect(linear(ctx, tensor({2, 3}, {1, 10, 100, -1, 0, 1}), w), {321, 654, 2, 2});
}

TEST_F(Definitions, Embedding) {
  Param w = param({3, 2}, {1, 2, 3, 4, 5, 6});
  expect(embedding(ctx, ids({2, 0, 2}), w), {5, 6, 1, 2, 5, 6});
}

TEST_F(Definitions, RmsNormDividesByTheRootOfMeanSquarePlusEps) {
  const int64_t rows = 3, cols = 5;
  const float eps = 1e-2f;
  const Values x = draw(rows * cols, "x", 0.1), w = draw(cols, "w");  // small enough for eps to matter
  Values wanted;
  for (int64_t r = 0; r < rows; ++r) {
    double mean = 0;
    for (int64_t c = 0; c < cols; ++c) mean += std::pow(x[r * cols + c], 2) / cols;
    for (int64_t c = 0; c < cols; ++c)
      wanted.push_back(x[r * cols + c] / std::sqrt(mean + static_cast<double>(eps)) * w[c]);
  }
  Param weight = param({cols}, w);
  expect(rms_norm(ctx, tensor({rows, cols}, x), weight, eps), wanted);
}

TEST_F(Definitions, SwigluIsGateTimesItsSigmoidTimesUp) {
  const Values gate = draw(12, "gate", 3), up = draw(12, "up");
  Values wanted;
  for (std::size_t i = 0; i < gate.size(); ++i)
    wanted.push_back(gate[i] * (0.5 * std::tanh(0.5 * gate[i]) + 0.5) * up[i]);
  expect(swiglu(ctx, tensor({3, 4}, gate), tensor({3, 4}, up)), wanted);
}

TEST_F(Definitions, CrossEntropyIsTheMeanOverTokensThatCount) {
  const int64_t V = 4;
  const Values z = draw(3 * V, "z");
  auto minus_log_softmax = [&](int64_t r, int64_t target) {
    double sum = 0;
    for (int64_t v = 0; v < V; ++v) sum += std::exp(z[r * V + v]);
    return -std::log(std::exp(z[r * V + target]) / sum);
  };
  const Tensor logits = tensor({3, V}, z);
  expect(cross_entropy(ctx, logits, ids({2, kIgnoreTarget, 0})),
         {(minus_log_softmax(0, 2) + minus_log_softmax(2, 0)) / 2});
  for (int32_t outside : {-1, 4, -99}) {
    EXPECT_TRUE(std::isnan(cross_entropy(ctx, logits, ids({2, outside, 0})).data<double>()[0])) << outside;
  }
}

// Every score of every query against every key, then what the mask leaves of it.
Values attention_by_definition(const Values& q, const Values& k, const Values& v, const AttentionProblem& p,
                               double scale) {
  auto at = [&](const Values& t, int64_t heads, int64_t length, int64_t b, int64_t i, int64_t h, int64_t c) {
    return t[((b * length + i) * heads + h) * p.D + c];
  };
  Values o(q.size());
  for (int64_t b = 0; b < p.B; ++b) {
    for (int64_t h = 0; h < p.H; ++h) {
      const int64_t shared = h * p.Hkv / p.H;  // neighbouring query heads share a key/value head
      for (int64_t i = 0; i < p.Tq; ++i) {
        Values weight(static_cast<std::size_t>(p.Tk));
        double sum = 0;
        for (int64_t j = 0; j < p.Tk; ++j) {
          const bool later = p.Tk - j < p.Tq - i;  // counted from the last query and the last key
          if (p.causal && later) continue;
          double score = 0;
          for (int64_t c = 0; c < p.D; ++c)
            score += at(q, p.H, p.Tq, b, i, h, c) * at(k, p.Hkv, p.Tk, b, j, shared, c);
          sum += weight[j] = std::exp(scale * score);
        }
        for (int64_t j = 0; sum > 0 && j < p.Tk; ++j) {
          for (int64_t c = 0; c < p.D; ++c)
            o[((b * p.Tq + i) * p.H + h) * p.D + c] += weight[j] / sum * at(v, p.Hkv, p.Tk, b, j, shared, c);
        }
      }
    }
  }
  return o;
}

TEST_F(Definitions, AttentionScalesMasksAndSharesHeads) {
  for (const auto& [H, Hkv] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {4, 4}, {6, 2}, {4, 1}}) {
    for (const auto& [Tq, Tk] : std::vector<std::pair<int64_t, int64_t>>{{5, 5}, {2, 5}, {5, 2}}) {
      for (bool causal : {true, false}) {
        const AttentionProblem p{2, Tq, Tk, H, Hkv, 4, DType::f64, 0, causal};
        const Values q = draw(p.B * Tq * H * p.D, "q"), k = draw(p.B * Tk * Hkv * p.D, "k"),
                     v = draw(p.B * Tk * Hkv * p.D, "v");
        AttentionOptions o;
        o.heads = H;
        o.kv_heads = Hkv;
        o.causal = causal;
        const Tensor tq = tensor({p.B, Tq, H * p.D}, q), tk = tensor({p.B, Tk, Hkv * p.D}, k),
                     tv = tensor({p.B, Tk, Hkv * p.D}, v);
        expect(attention(ctx, tq, tk, tv, o), attention_by_definition(q, k, v, p, 0.5));  // 1 / sqrt(4)
        o.scale = 0.25f;
        expect(attention(ctx, tq, tk, tv, o), attention_by_definition(q, k, v, p, 0.25));
      }
    }
  }
}

TEST_F(Definitions, AttentionLetsNoMaskedNanThrough) {
  const double nan = std::nan("");
  const Tensor q = tensor({1, 2, 1}, {1, 1}), k = tensor({1, 2, 1}, {1, nan}),
               v = tensor({1, 2, 1}, {7, nan});
  const Tensor o = attention(ctx, q, k, v, {});
  EXPECT_EQ(o.data<double>()[0], 7);  // sees key 0 only
  EXPECT_TRUE(std::isnan(o.data<double>()[1]));
}

// Head 1 of the token at position 5, pair 1 of 2: turned by 5 * 100^(-2/4) = 0.5.
TEST_F(Definitions, RopeTurnsPairsByPosition) {
  const int64_t B = 2, T = 3, H = 2, D = 4;
  const Values q = draw(B * T * H * D, "q"), k = draw(B * T * H * D, "k");
  for (bool interleaved : {false, true}) {
    const RopeResult r =
        rope(ctx, tensor({B, T, H * D}, q), tensor({B, T, H * D}, k),
             {.heads = H, .kv_heads = H, .theta = 100, .offset = 3, .interleaved = interleaved});
    Values wanted_q(q.size()), wanted_k(k.size());
    for (int64_t row = 0; row < B * T; ++row) {
      for (int64_t h = 0; h < H; ++h) {
        for (int64_t i = 0; i < D / 2; ++i) {
          const double angle =
              static_cast<double>(3 + row % T) * std::pow(100.0, -2.0 * static_cast<double>(i) / D);
          const int64_t a = row * H * D + h * D + (interleaved ? 2 * i : i),
                        b = interleaved ? a + 1 : a + D / 2;
          for (auto [in, out] : {std::pair(&q, &wanted_q), std::pair(&k, &wanted_k)}) {
            (*out)[a] = (*in)[a] * std::cos(angle) - (*in)[b] * std::sin(angle);
            (*out)[b] = (*in)[a] * std::sin(angle) + (*in)[b] * std::cos(angle);
          }
        }
      }
    }
    expect(r.q, wanted_q);
    expect(r.k, wanted_k);
  }
}

TEST_F(Definitions, SoftmaxOfHugeValuesDoesNotOverflow) {
  const double e = std::exp(-1.0);
  expect(softmax(ctx, tensor({2, 2}, {1000, 999, -2000, -1000})), {1 / (1 + e), e / (1 + e), 0, 1});
  const float values[] = {-1000, 3000, 2800};
  const Tensor x = ctx.empty({1, 3}, DType::f32);
  ctx.upload(x, values);
  for (const char* variant : {"fused", "naive"}) {
    const Tensor y = softmax(ctx, x, variant);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(y.data<float>()[i], i == 1 ? 1.0f : 0.0f) << variant;
  }
}

TEST_F(Definitions, LayerNormCentresAndScales) {
  Param w = param({2}, {3, 5}), b = param({2}, {10, 20});
  const double rstd = 1 / std::sqrt(4 + 0.5);  // of 1 and 5: mean 3, variance 4
  expect(layer_norm(ctx, tensor({1, 2}, {1, 5}), w, b, 0.5f), {-2 * rstd * 3 + 10, 2 * rstd * 5 + 20});
}

TEST_F(Definitions, WeightedSumAndTheOpsOfOneValueARow) {
  Param w = param({3}, {1, 10, 100});
  const Tensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
  expect(weighted_sum(ctx, x, w), {321, 654});
  expect(row_mean(ctx, x), {2, 5});
  expect(mul_rows(ctx, x, tensor({2}, {2, -1})), {2, 4, 6, -4, -5, -6});
  expect(mul_columns(ctx, x, w), {1, 20, 300, 4, 50, 600});
  expect(relu(ctx, tensor({3}, {-2, 0, 3})), {0, 0, 3});
  expect(rsqrt(ctx, tensor({2}, {3, 8}), 1), {0.5, 1.0 / 3});
}

}  // namespace
}  // namespace kiln
