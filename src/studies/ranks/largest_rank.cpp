#include "studies/ranks/largest_rank.h"

#include <algorithm>
#include <span>
#include <vector>

#include "dist/launch/rank_agreement.h"

namespace kiln {
namespace {

constexpr std::size_t kStatsNumbers = 4 + 2 * static_cast<std::size_t>(kTagCount);

void append_stats(std::vector<double>& numbers, const MemoryStats& m) {
  for (const std::size_t n : {m.live_total, m.peak_total, m.reserved, m.peak_reserved})
    numbers.push_back(static_cast<double>(n));
  for (const auto* tags : {&m.live, &m.peak})
    for (const std::size_t n : tags->values) numbers.push_back(static_cast<double>(n));
}

MemoryStats stats_at(std::span<const double> numbers) {
  const auto at = [&](std::size_t i) { return static_cast<std::size_t>(numbers[i]); };
  MemoryStats m;
  m.live_total = at(0);
  m.peak_total = at(1);
  m.reserved = at(2);
  m.peak_reserved = at(3);
  for (std::size_t t = 0; t < m.live.values.size(); ++t) {
    m.live.values[t] = at(4 + t);
    m.peak.values[t] = at(4 + m.live.values.size() + t);
  }
  return m;
}

}  // namespace

void keep_largest_rank(RankContext& ctx, Communicator& comm, MemorySnapshots& memory, int& rank) {
  if (comm.world() == 1) return;
  std::vector<double> mine;
  for (const MemoryStats* m : {&memory.after_init, &memory.before_step, &memory.after_step})
    append_stats(mine, *m);
  const auto ranks = all_gather_numbers(ctx, comm, mine, "memory of a step");
  const auto peak = [&](const std::vector<double>& numbers) { return numbers[2 * kStatsNumbers + 1]; };
  const auto most = std::max_element(ranks.begin(), ranks.end(),
                                     [&](const auto& a, const auto& b) { return peak(a) < peak(b); });
  rank = static_cast<int>(most - ranks.begin());
  const std::span<const double> all(*most);
  memory = {stats_at(all.first(kStatsNumbers)), stats_at(all.subspan(kStatsNumbers, kStatsNumbers)),
            stats_at(all.last(kStatsNumbers))};
}

}  // namespace kiln
