// Logits to a token. Temperature divides the logits; top-k then leaves the k most likely tokens, top-p the
// fewest of those whose probabilities sum to at least p; one is drawn from what is left. Ties are
// broken by id, the smaller first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kiln {

struct SamplerOptions {
  double temperature = 1;  // 0: always the most likely token
  int64_t top_k = 0;       // 0: all
  double top_p = 1;        // 1: all
};

// Throws Error(usage) with the value and what was expected.
void check_sampler(const SamplerOptions& options);

class Sampler {
 public:
  Sampler(const SamplerOptions& options, uint64_t seed);

  // The token that sample number `sample` has at `position`. The random number is keyed by seed, sample and
  // position alone: no draw depends on how many came before it. Throws Error for logits that are not numbers.
  int32_t pick(std::span<const float> logits, uint64_t sample, uint64_t position);

 private:
  // Fills weights_ with the chances of all tokens, not normalised: the most likely one has 1.
  void weigh(std::span<const float> logits, float highest);
  void keep_top_k();
  void keep_top_p();

  SamplerOptions options_;
  uint64_t seed_;
  std::vector<double> weights_;  // 0: left out
  std::vector<int32_t> order_;
};

}  // namespace kiln
