// The scratch of the fused CUDA backward: the positions of every token, in order. In every build, because
// `meta` predicts what a GPU would use.
#pragma once

#include "ops/embedding/embedding.h"

namespace kiln {

// Positions of one token that are summed by one block; a token used more often has several such runs.
inline constexpr int64_t kEmbeddingRun = 128;

struct EmbeddingScratch {
  int64_t runs;  // of tokens that have several: at most this many
  // Where each part begins, in bytes. First the runs' sums, fp32 [runs, cols].
  std::size_t counts, cursors, starts, first_runs, slots, placed, ordered, run_begin, run_length, total;

  explicit EmbeddingScratch(const EmbeddingProblem& p) {
    // A token used c > kEmbeddingRun times has at most c / kEmbeddingRun + 1 < 2 c / kEmbeddingRun runs.
    runs = p.tokens > kEmbeddingRun ? 2 * p.tokens / kEmbeddingRun : 0;
    std::size_t at = static_cast<std::size_t>(runs * p.cols) * sizeof(float);
    const auto ints = [&](int64_t n) {
      const std::size_t begin = at;
      at += static_cast<std::size_t>(n) * sizeof(int32_t);
      return begin;
    };
    counts = ints(p.vocab);
    cursors = ints(2);  // next to the counts: both start as zero
    starts = ints(p.vocab);
    first_runs = ints(p.vocab);
    slots = ints(p.tokens);
    placed = ints(p.tokens);
    ordered = ints(p.tokens);
    run_begin = ints(runs);
    run_length = ints(runs);
    total = at;
  }
};

}  // namespace kiln
