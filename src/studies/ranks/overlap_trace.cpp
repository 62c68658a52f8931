#include "base/error.h"
#include "studies/ranks/overlap_charts.h"

namespace kiln {
namespace {

void add_step(Timeline& out, const NamedLedger& step) {
  const OverlapLedger& l = step.ledger;
  const int compute = out.add_lane(cat(step.name, ": compute"));
  const int still = out.add_lane(cat(step.name, ": stalled"));
  const int communication = out.add_lane(cat(step.name, ": communication"));
  out.add_span(compute, "forward", "forward", 0, l.backward_begin);
  out.add_span(compute, "backward", "backward", l.backward_begin, l.backward_end - l.backward_begin);
  out.add_span(compute, "sums, norm, update", "update", l.backward_end, l.end - l.backward_end);
  for (const ReadyGradient& g : l.gradients)
    out.add_span(compute, cat("ready: ", g.name), "gradient", g.ready, 0, {{"bytes", g.bytes}});
  for (const TimeSpan& w : l.waits) out.add_span(still, "waits", "wait", w.begin, w.us());
  for (const LedgerEntry& e : l.entries)
    out.add_span(communication, e.name, e.exposed > 0 ? "exposed" : "hidden", e.start, e.end - e.start,
                 {{"collective", e.collective},
                  {"bytes", e.bytes},
                  {"ready_us", e.ready},
                  {"slack_us", e.slack},
                  {"exposed_us", e.exposed}});
}

}  // namespace

Timeline overlap_timeline(const std::vector<NamedLedger>& steps, const std::string& title, int rank) {
  Timeline out(title, rank);
  for (const NamedLedger& s : steps) add_step(out, s);
  return out;
}

}  // namespace kiln
