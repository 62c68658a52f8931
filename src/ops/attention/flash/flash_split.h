// Split-KV: where flash's forward would have too few blocks to fill a GPU (one head, or one query), a block
// takes one of several splits of the keys that its queries see, and a second kernel combines what the splits
// found. How many splits follows from the problem alone, on any machine: the meta device counts the workspace
// too, and other splits would mean other last bits.
#pragma once

#include <algorithm>

#include "ops/attention/attention.h"
#include "ops/attention/flash/flash_table.h"

namespace kiln::flash {

constexpr int64_t kMultiprocessors = 132;  // of an H200

// Blocks of the smaller kind that its shared memory (228 KiB, of which each block costs 1 more) lets a
// multiprocessor have at once.
constexpr int64_t flash_blocks_at_once(FlashTiles t) {
  t.queries = t.few_queries;
  const auto fit = static_cast<int64_t>(std::size_t{228} * 1024 / (flash_forward_bytes(t) + 1024));
  return std::clamp<int64_t>(fit, 1, 8);
}

// From 8 tiles of keys on, since combining is a launch more; an estimate, as are the other bounds. No split
// of the last queries' keys has less than four, or two where multiprocessors would be idle otherwise; under a
// mask those of the first may be empty. Under a causal mask twice as many as fit at once: with the longest
// first, the second ones are as short as the first ones are long. At most kMaxSplits, since they are combined
// one after the other.
constexpr int64_t kMaxSplits = 128;
// From so many tiles of keys on, twice as many blocks are still too few: all would be in the GPU at once, and
// the longest would set the time.
constexpr int64_t kLongKeys = 256;

inline int64_t num_splits(const AttentionProblem& p) {
  const FlashTiles t = flash_tiles(p.D);
  const int64_t tiles = (p.Tk + kTile - 1) / kTile;
  const int64_t blocks = p.B * p.H * ((p.Tq + t.few_queries - 1) / t.few_queries);
  if (p.varlen || blocks == 0 || tiles < 8) return 1;
  if (blocks > (p.causal && tiles >= kLongKeys ? 4 : 2) * kMultiprocessors) return 1;
  const int64_t fill = kMultiprocessors * flash_blocks_at_once(t) * (p.causal ? 2 : 1) / blocks;
  const int64_t most = std::max(tiles / 4, std::min(tiles / 2, 2 * kMultiprocessors / blocks));
  return std::clamp<int64_t>(fill, 1, std::min(most, kMaxSplits));
}

// What the splits leave for the second kernel, in floats.
struct SplitWorkspace {
  int64_t splits, rows, width;
  int64_t lse;  // the place of the splits' lse [splits, rows], behind their o [splits, rows, width]

  explicit SplitWorkspace(const AttentionProblem& p)
      : splits(num_splits(p)),
        rows(p.B * p.H * p.Tq),
        width(flash_tiles(p.D).width),
        lse(splits * rows * width) {}
  std::size_t bytes() const {
    return splits == 1 ? 0 : static_cast<std::size_t>(lse + splits * rows) * sizeof(float);
  }
};

}  // namespace kiln::flash
