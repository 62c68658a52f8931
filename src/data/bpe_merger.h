// The core of encoding: merges the symbols of one word, always the pair of lowest rank, of equal ones the
// leftmost, until no pair is in the table.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/bpe_model.h"
#include "data/pair_map.h"

namespace kiln {

class BpeMerger {
 public:
  explicit BpeMerger(std::span<const BpeMerge> merges);

  // Merges in place; only pairs ranked below `rank_limit`.
  void merge(std::vector<int32_t>& symbols, int32_t rank_limit = kNoRank) const;

  static constexpr int32_t kNoRank = INT32_MAX;

 private:
  struct Target {
    int32_t rank = kNoRank, result = -1;
  };
  Target look_up(int32_t left, int32_t right, int32_t rank_limit) const {
    const Target* t = table_.find(pair_key(left, right));
    return t != nullptr && t->rank < rank_limit ? *t : Target{};
  }
  void merge_short(std::vector<int32_t>& symbols, int32_t rank_limit) const;
  void merge_long(std::vector<int32_t>& symbols, int32_t rank_limit) const;

  PairMap<Target> table_;
};

}  // namespace kiln
