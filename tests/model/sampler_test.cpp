#include "model/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/error.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

constexpr uint64_t kDraws = 8000;

// How often each token is drawn at positions 0, 1, ...
std::vector<double> shares(const SamplerOptions& o, const std::vector<float>& logits, uint64_t seed = 1) {
  Sampler sampler(o, seed);
  std::vector<double> count(logits.size());
  for (uint64_t i = 0; i < kDraws; ++i) ++count[static_cast<std::size_t>(sampler.pick(logits, 0, i))];
  for (double& n : count) n /= kDraws;
  return count;
}

// What they should be, of the tokens in `kept`.
std::vector<double> softmax(const std::vector<float>& logits, double temperature, const std::set<int>& kept) {
  std::vector<double> p(logits.size());
  double sum = 0;
  for (const int i : kept) sum += p[i] = std::exp(logits[i] / temperature);
  for (double& x : p) x /= sum;
  return p;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double sigma = std::sqrt(wanted[i] * (1 - wanted[i]) / kDraws);
    EXPECT_NEAR(got[i], wanted[i], 4.5 * sigma) << "token " << i;
    if (wanted[i] == 0) {
      EXPECT_EQ(got[i], 0) << "token " << i;
    }
  }
}

// Probabilities 0.4, 0.3, 0.2, 0.1, in another order than the ids.
const std::vector<float> kFour = {std::log(0.2f), std::log(0.4f), std::log(0.1f), std::log(0.3f)};

TEST(Sampler, DrawsByTheSoftmaxOfTheLogits) {
  expect_near(shares({}, kFour), softmax(kFour, 1, {0, 1, 2, 3}));
  expect_near(shares({.temperature = 2}, kFour), softmax(kFour, 2, {0, 1, 2, 3}));
  expect_near(shares({.temperature = 0.3}, kFour), softmax(kFour, 0.3, {0, 1, 2, 3}));
}

TEST(Sampler, TopKLeavesTheKMostLikely) {
  expect_near(shares({.top_k = 2}, kFour), softmax(kFour, 1, {1, 3}));
  expect_near(shares({.temperature = 3, .top_k = 3}, kFour), softmax(kFour, 3, {0, 1, 3}));
  expect_near(shares({.top_k = 1}, kFour), {0, 1, 0, 0});
}

TEST(Sampler, TopPLeavesTheFewestThatReachIt) {
  expect_near(shares({.top_p = 0.39}, kFour), {0, 1, 0, 0});
  expect_near(shares({.top_p = 0.41}, kFour), softmax(kFour, 1, {1, 3}));
  expect_near(shares({.top_p = 0.69}, kFour), softmax(kFour, 1, {1, 3}));
  expect_near(shares({.top_p = 0.71}, kFour), softmax(kFour, 1, {0, 1, 3}));
  expect_near(shares({.top_p = 0.95}, kFour), softmax(kFour, 1, {0, 1, 2, 3}));
  // Temperature comes first: at 0.5 the probabilities are 16 : 9 : 4 : 1 of 30.
  expect_near(shares({.temperature = 0.5, .top_p = 0.6}, kFour), softmax(kFour, 0.5, {1, 3}));
  // Then top-k, and p is of what it left: 4 of 7 alone.
  expect_near(shares({.top_k = 2, .top_p = 0.57}, kFour), {0, 1, 0, 0});
  expect_near(shares({.top_k = 2, .top_p = 0.58}, kFour), softmax(kFour, 1, {1, 3}));
}

// The smallest set by a slow and plain search, for a vocabulary in which nearly all tokens are hopeless.
TEST(Sampler, TopPOfManyTokensIsTheSmallestSet) {
  std::vector<float> logits(1003);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>((i * 7919) % 1003) * 0.02f;
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  const auto p = softmax(logits, 1, {order.begin(), order.end()});
  for (const double top_p : {0.1, 0.5, 0.9, 0.999}) {
    std::set<int> kept;
    double sum = 0;
    for (std::size_t i = 0; sum < top_p; ++i) {
      kept.insert(order[i]);
      sum += p[order[i]];
    }
    expect_near(shares({.top_p = top_p}, logits), softmax(logits, 1, kept));
  }
}

TEST(Sampler, TiesGoToTheSmallerId) {
  const std::vector<float> equal = {1, 3, 3, 3, 0};
  expect_near(shares({.temperature = 0}, equal), {0, 1, 0, 0, 0});
  expect_near(shares({.top_k = 2}, equal), {0, 0.5, 0.5, 0, 0});
  expect_near(shares({.temperature = 1e-9, .top_p = 0.5}, equal), {0, 0.5, 0.5, 0, 0});
}

TEST(Sampler, ADrawDependsOnSeedSampleAndPositionAlone) {
  const std::vector<float> logits(50, 0.0f);
  const auto row = [&](uint64_t seed, uint64_t sample) {
    Sampler s({}, seed);
    std::vector<int32_t> ids;
    for (uint64_t i = 0; i < 40; ++i) ids.push_back(s.pick(logits, sample, i));
    return ids;
  };
  const auto ids = row(7, 0);
  EXPECT_EQ(ids, row(7, 0));
  EXPECT_NE(ids, row(8, 0));
  EXPECT_NE(ids, row(7, 1));
  Sampler backwards({}, 7);
  for (uint64_t i = 40; i-- > 0;) EXPECT_EQ(backwards.pick(logits, 0, i), ids[i]);
  // A limit that leaves nothing out changes no draw.
  Sampler limited({.top_k = 50, .top_p = 1}, 7);
  for (uint64_t i = 0; i < 40; ++i) EXPECT_EQ(limited.pick(logits, 0, i), ids[i]);
}

TEST(Sampler, TakesExtremeLogits) {
  const std::vector<float> extreme = {-INFINITY, 3e38f, -3e38f, 3e38f};
  expect_near(shares({}, extreme), {0, 0.5, 0, 0.5});
  expect_near(shares({.temperature = 1e-300, .top_p = 0.9}, extreme), {0, 0.5, 0, 0.5});
  expect_near(shares({.temperature = 1e300}, {0, 1}), {0.5, 0.5});
}

TEST(Sampler, RefusesWhatIsNoChoice) {
  const auto refused = [](const SamplerOptions& o) { return KILN_ERROR_OF(Sampler(o, 0)); };
  EXPECT_EQ(refused({.temperature = -1}), "temperature is -1; expected 0 (the most likely token) or more");
  EXPECT_NE(refused({.temperature = NAN}), "nothing");
  EXPECT_NE(refused({.temperature = INFINITY}), "nothing");
  EXPECT_EQ(refused({.top_k = -3}), "top-k is -3; expected 1 or more, or 0 for all tokens");
  EXPECT_EQ(refused({.top_p = 0}), "top-p is 0; expected a probability above 0 and up to 1");
  EXPECT_NE(refused({.top_p = 1.01}), "nothing");
  EXPECT_NE(refused({.top_p = NAN}), "nothing");
  Sampler s({.temperature = 0}, 0);
  EXPECT_NE(KILN_ERROR_OF(s.pick(std::vector<float>{0, NAN}, 0, 0)).find("token 1 is nan"),
            std::string::npos);
  EXPECT_NE(KILN_ERROR_OF(s.pick(std::vector<float>{INFINITY, 0}, 0, 0)), "nothing");
  EXPECT_NE(KILN_ERROR_OF(s.pick(std::vector<float>{-INFINITY}, 0, 0)), "nothing");
  EXPECT_NE(KILN_ERROR_OF(s.pick({}, 0, 0)), "nothing");
}

}  // namespace
}  // namespace kiln
