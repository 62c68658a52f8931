#include "model/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"

namespace kiln {
namespace {

// The most likely token: of equal ones the first.
std::size_t highest_of(std::span<const float> logits) {
  if (logits.empty()) throw Error("there are no logits to choose a token by");
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == INFINITY)
      throw Error(cat("the logit of token ", i, " is ", logits[i], "; the model's output is not finite"),
                  "its weights may be broken, or bf16 may be too narrow for them: try fp32");
    if (logits[i] > logits[best]) best = i;
  }
  if (logits[best] == -INFINITY) throw Error("the logits of all tokens are -inf: none can be sampled");
  return best;
}

// 53 random bits as a number in [0, 1).
double uniform(uint64_t seed, uint64_t sample, uint64_t position) {
  const Philox4 bits = philox(philox_key(seed, "sample"),
                              {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                               static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32)});
  return static_cast<double>((static_cast<uint64_t>(bits.x) << 32 | bits.y) >> 11) * 0x1p-53;
}

}  // namespace

void check_sampler(const SamplerOptions& o) {
  if (!(o.temperature >= 0) || !std::isfinite(o.temperature))
    throw Error(cat("temperature is ", o.temperature, "; expected 0 (the most likely token) or more"), {},
                ErrorKind::usage);
  if (o.top_k < 0)
    throw Error(cat("top-k is ", o.top_k, "; expected 1 or more, or 0 for all tokens"), {}, ErrorKind::usage);
  if (!(o.top_p > 0 && o.top_p <= 1))
    throw Error(cat("top-p is ", o.top_p, "; expected a probability above 0 and up to 1"), {},
                ErrorKind::usage);
}

Sampler::Sampler(const SamplerOptions& options, uint64_t seed) : options_(options), seed_(seed) {
  check_sampler(options);
}

int32_t Sampler::pick(std::span<const float> logits, uint64_t sample, uint64_t position) {
  const std::size_t best = highest_of(logits);
  if (options_.temperature == 0 || options_.top_k == 1) return static_cast<int32_t>(best);
  weigh(logits, logits[best]);
  if (options_.top_k > 0 && options_.top_k < static_cast<int64_t>(logits.size())) keep_top_k();
  if (options_.top_p < 1) keep_top_p();

  // Tokens are walked through by id, so that a limit that leaves nothing out changes no choice.
  const double all = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  double left = uniform(seed_, sample, position) * all;
  std::size_t last = best;  // should rounding walk past the end
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] == 0) continue;
    if (left < weights_[i]) return static_cast<int32_t>(i);
    left -= weights_[i];
    last = i;
  }
  return static_cast<int32_t>(last);
}

void Sampler::weigh(std::span<const float> logits, float highest) {
  weights_.resize(logits.size());
  const double top = highest;
  for (std::size_t i = 0; i < logits.size(); ++i)
    weights_[i] = std::exp((static_cast<double>(logits[i]) - top) / options_.temperature);
}

void Sampler::keep_top_k() {
  order_.resize(weights_.size());
  std::iota(order_.begin(), order_.end(), 0);
  const auto k = order_.begin() + options_.top_k;
  std::nth_element(order_.begin(), k, order_.end(), [this](int32_t a, int32_t b) {
    return weights_[a] != weights_[b] ? weights_[a] > weights_[b] : a < b;
  });
  for (auto i = k; i != order_.end(); ++i) weights_[*i] = 0;
}

void Sampler::keep_top_p() {
  const double all = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  // Tokens below this share sum to less than 1 - p, so those above it reach p without them: only a few
  // are left to sort.
  const double least = all * (1 - options_.top_p) / static_cast<double>(weights_.size());
  order_.clear();
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] > 0 && weights_[i] >= least) order_.push_back(static_cast<int32_t>(i));
  }
  std::sort(order_.begin(), order_.end(), [this](int32_t a, int32_t b) {
    return weights_[a] != weights_[b] ? weights_[a] > weights_[b] : a < b;
  });
  double sum = 0;
  std::size_t kept = 0;
  while (kept < order_.size() && sum < options_.top_p * all) sum += weights_[order_[kept++]];
  std::vector<double> few(weights_.size(), 0.0);
  for (std::size_t i = 0; i < kept; ++i) few[order_[i]] = weights_[order_[i]];
  weights_.swap(few);
}

}  // namespace kiln
