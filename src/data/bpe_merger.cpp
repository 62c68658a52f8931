#include "data/bpe_merger.h"

#include <array>
#include <queue>
#include <tuple>

namespace kiln {
namespace {

// Up to here looking at every pair before each merge is quicker than keeping a heap.
constexpr std::size_t kShort = 64;

}  // namespace

BpeMerger::BpeMerger(std::span<const BpeMerge> merges) : table_(merges.size()) {
  for (const BpeMerge& m : merges) {
    Target& t = table_[pair_key(m.left, m.right)];
    if (m.rank < t.rank) t = {m.rank, m.result};
  }
}

void BpeMerger::merge(std::vector<int32_t>& symbols, int32_t rank_limit) const {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kShort) {
    merge_short(symbols, rank_limit);
  } else {
    merge_long(symbols, rank_limit);
  }
}

void BpeMerger::merge_short(std::vector<int32_t>& symbols, int32_t rank_limit) const {
  std::array<Target, kShort> pairs;  // pairs[i]: what symbols i and i + 1 become
  std::size_t n = symbols.size();
  for (std::size_t i = 0; i + 1 < n; ++i) pairs[i] = look_up(symbols[i], symbols[i + 1], rank_limit);
  for (;;) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (n < 2 || pairs[best].rank == kNoRank) break;
    symbols[best] = pairs[best].result;
    for (std::size_t i = best + 1; i + 1 < n; ++i) {
      symbols[i] = symbols[i + 1];
      pairs[i] = pairs[i + 1];
    }
    --n;
    if (best > 0) pairs[best - 1] = look_up(symbols[best - 1], symbols[best], rank_limit);
    if (best + 1 < n) pairs[best] = look_up(symbols[best], symbols[best + 1], rank_limit);
  }
  symbols.resize(n);
}

// The same with a heap of pairs and a list of neighbours: n log n, for words of any length.
void BpeMerger::merge_long(std::vector<int32_t>& symbols, int32_t rank_limit) const {
  const std::size_t n = symbols.size();
  constexpr int32_t kGone = -1;
  std::vector<std::size_t> next(n), previous(n);
  struct Candidate {
    int32_t rank;
    std::size_t at;
    int32_t left, right, result;
    bool operator>(const Candidate& o) const { return std::tie(rank, at) > std::tie(o.rank, o.at); }
  };
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap;
  const auto offer = [&](std::size_t at) {
    const std::size_t with = next[at];
    if (with == n) return;
    const Target t = look_up(symbols[at], symbols[with], rank_limit);
    if (t.rank != kNoRank) heap.push({t.rank, at, symbols[at], symbols[with], t.result});
  };
  for (std::size_t i = 0; i < n; ++i) {
    next[i] = i + 1;
    previous[i] = i == 0 ? n : i - 1;
  }
  for (std::size_t i = 0; i < n; ++i) offer(i);
  while (!heap.empty()) {
    const Candidate c = heap.top();
    heap.pop();
    const std::size_t with = symbols[c.at] == c.left ? next[c.at] : n;
    if (with == n || symbols[with] != c.right) continue;  // one of the two was merged meanwhile
    symbols[c.at] = c.result;
    symbols[with] = kGone;
    next[c.at] = next[with];
    if (next[with] != n) previous[next[with]] = c.at;
    offer(c.at);
    if (previous[c.at] != n) offer(previous[c.at]);
  }
  std::erase(symbols, kGone);
}

}  // namespace kiln
