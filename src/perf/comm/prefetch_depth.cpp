#include "perf/comm/prefetch_depth.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"

namespace kiln {
namespace {

std::string words(const PrefetchDepth& d) {
  return fmt::format("{:.2f} ms exposed of {:.2f} ms communication", d.exposed / 1e3, d.communication / 1e3);
}

std::string memory(const PrefetchDepth& d) { return human({static_cast<std::size_t>(d.bytes)}); }

}  // namespace

PrefetchChoice choose_prefetch(std::span<const GatherWindowTime> windows, int ranks,
                               const CallSeconds& seconds, int64_t free_bytes) {
  int64_t slot = 0, gradient = 0;
  for (const GatherWindowTime& w : windows) {
    slot = std::max(slot, w.bytes);
    gradient = std::max(gradient, w.scatter_bytes);
  }
  PrefetchChoice c;
  for (int k = 0; k <= kDeepestPrefetch; ++k) {
    const GatherReplay r = replay_gathers(windows, k, ranks, seconds);
    c.tried.push_back({k, r.end, r.exposed, r.communication, k * (slot + gradient)});
  }
  const auto fits = [free_bytes](const PrefetchDepth& d) { return d.depth == 0 || d.bytes <= free_bytes; };
  const auto least = [&](auto among) {
    double end = c.tried.front().end;
    for (const PrefetchDepth& d : c.tried)
      if (among(d)) end = std::min(end, d.end);
    return end;
  };
  const double here = least(fits), anywhere = least([](const PrefetchDepth&) { return true; });
  c.best = *std::find_if(c.tried.begin(), c.tried.end(), [&](const PrefetchDepth& d) {
    return fits(d) && d.end <= here * (1 + kPrefetchTolerance);
  });
  c.by_memory = anywhere * (1 + kPrefetchTolerance) < here;
  return c;
}

std::string PrefetchChoice::why() const {
  std::string text = fmt::format("{}: {}, {} more memory than 0", best.depth, words(best), memory(best));
  const auto at = static_cast<std::size_t>(best.depth);
  if (best.depth > 0) text += fmt::format("; {}: {}", best.depth - 1, words(tried[at - 1]));
  if (by_memory)
    text += fmt::format("; {} would take {}, which is not free", best.depth + 1, memory(tried[at + 1]));
  else if (at + 1 < tried.size())
    text += fmt::format("; {} would take {} and make the step less than {:.0f} % shorter", best.depth + 1,
                        memory(tried[at + 1]), 100 * kPrefetchTolerance);
  return text;
}

}  // namespace kiln
