#include "perf/comm/overlap_ledger.h"

#include <algorithm>
#include <limits>

namespace kiln {

double covered(std::vector<TimeSpan> spans, const TimeSpan& within) {
  std::sort(spans.begin(), spans.end(),
            [](const TimeSpan& a, const TimeSpan& b) { return a.begin < b.begin; });
  double sum = 0, done = within.begin;  // what is before it is counted
  for (const TimeSpan& s : spans) {
    const double begin = std::max(s.begin, done), end = std::min(s.end, within.end);
    if (end <= begin) continue;
    sum += end - begin;
    done = end;
  }
  return sum;
}

void check_entries(OverlapLedger& ledger) {
  for (LedgerEntry& e : ledger.entries) {
    e.exposed = covered(ledger.waits, {e.start, e.end});
    e.slack = e.bucket && e.exposed == 0 ? std::max(0.0, ledger.backward_end - e.end) : 0;
  }
}

OverlapTotals totals_of(const OverlapLedger& ledger) {
  constexpr TimeSpan kAlways = {std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max()};
  OverlapTotals t;
  std::vector<TimeSpan> calls;
  for (const LedgerEntry& e : ledger.entries) {
    calls.push_back({e.start, e.end});
    t.exposed += e.exposed;
  }
  t.communication = covered(std::move(calls), kAlways);
  t.waited = covered(ledger.waits, kAlways);
  return t;
}

}  // namespace kiln
