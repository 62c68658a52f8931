// Where flash_hopper yields to flash because it would not fill a GPU. Its forward gives a block 64 or more
// queries and all their keys, so that one head of 4096 queries is 32 or 64 blocks, as long as the keys are
// many; flash splits the keys. And its backward is three kernels that wait for one another, where
// flash has two. So each pass goes to the row that takes less time by these estimates, which hold within a
// quarter of what was measured (H200, one head, causal, 128 to 65,536 tokens: docs/results/h200.md).
#pragma once

#include "ops/attention/flash/flash_split.h"

namespace kiln {

// Microseconds of a forward pass.
struct ForwardTimes {
  double hopper_start, hopper_key;          // blocks side by side, each key after the other
  double flash_start, flash_million_pairs;  // splits of the keys fill the GPU
};

constexpr ForwardTimes forward_times(int64_t D) {
  if (D <= 32) return {7, 6.9e-3, 12, 0.70};
  if (D <= 64) return {7, 6.9e-3, 14, 1.13};
  return {10, 12e-3, 13, 2.1};
}

// Where it says yes, flash splits the keys.
inline bool split_kv_beats_hopper(const AttentionProblem& p) {
  if (flash::num_splits(p) == 1) return false;
  const ForwardTimes t = forward_times(p.D);
  const int64_t few = flash::flash_tiles(p.D).few_queries;
  const int64_t rows = p.B * p.H * ((p.Tq + few - 1) / few) * few;
  const bool triangle = p.causal && p.Tq == p.Tk;
  const double pairs = static_cast<double>(rows) * static_cast<double>(p.Tk) * (triangle ? 0.5 : 1);
  return t.flash_start + t.flash_million_pairs * pairs * 1e-6 <
         t.hopper_start + t.hopper_key * static_cast<double>(p.Tk);
}

// One tile of wide heads is as fast in flash_hopper; from four on its matmuls are faster.
inline bool flash_backward_beats_hopper(const AttentionProblem& p) {
  if (p.varlen || p.B * p.H * ((p.Tk + flash::kTile - 1) / flash::kTile) > flash::kMultiprocessors)
    return false;
  const int64_t longest = p.D <= 32 ? 512 : 256, shortest = p.D <= 32 ? 1 : 129;
  const int64_t length = std::max(p.Tq, p.Tk);
  return length >= shortest && length <= longest;
}

inline bool hopper_yields(const AttentionProblem& p, Pass pass) {
  return pass == Pass::forward ? split_kv_beats_hopper(p) : flash_backward_beats_hopper(p);
}

}  // namespace kiln
