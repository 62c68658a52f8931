#include "studies/ranks/overlap_tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"

namespace kiln {
namespace {

std::string us(double x) { return fmt::format("{:.0f}", x); }
std::string ms_of(double us) { return fmt::format("{:.3f}", us / 1e3); }
std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }
std::string kilobytes(double bytes) { return fmt::format("{:.1f}", bytes / 1e3); }

double sum(std::span<const LedgerEntry> entries, double (*of)(const LedgerEntry&)) {
  double all = 0;
  for (const LedgerEntry& e : entries) all += of(e);
  return all;
}

}  // namespace

TextTable ledger_table(const OverlapLedger& ledger, std::size_t most) {
  TextTable table = {
      {"what", "collective", "KB", "ready us", "start us", "end us", "takes us", "slack us", "exposed us"}};
  const std::span<const LedgerEntry> all(ledger.entries);
  const std::size_t shown = all.size() <= most + 1 ? all.size() : most;
  for (const LedgerEntry& e : all.first(shown))
    table.push_back({e.name, e.collective, kilobytes(static_cast<double>(e.bytes)), us(e.ready), us(e.start),
                     us(e.end), us(e.end - e.start), e.exposed > 0 ? "-" : us(e.slack), us(e.exposed)});
  if (const auto rest = all.subspan(shown); !rest.empty())
    table.push_back({fmt::format("{} more", rest.size()), "",
                     kilobytes(sum(rest, [](const LedgerEntry& e) { return static_cast<double>(e.bytes); })),
                     "", us(rest.front().start), us(rest.back().end),
                     us(sum(rest, [](const LedgerEntry& e) { return e.end - e.start; })), "",
                     us(sum(rest, [](const LedgerEntry& e) { return e.exposed; }))});
  return table;
}

Json ledger_json(const OverlapLedger& ledger) {
  const OverlapTotals t = totals_of(ledger);
  Json entries = Json::array(), waits = Json::array();
  for (const LedgerEntry& e : ledger.entries)
    entries.push_back({{"name", e.name},
                       {"collective", e.collective},
                       {"bytes", e.bytes},
                       {"ready_us", e.ready},
                       {"start_us", e.start},
                       {"end_us", e.end},
                       {"slack_us", e.slack},
                       {"exposed_us", e.exposed}});
  for (const TimeSpan& w : ledger.waits) waits.push_back({w.begin, w.end});
  return {{"backward_begin_us", ledger.backward_begin},
          {"backward_end_us", ledger.backward_end},
          {"sums_end_us", ledger.sums_end},
          {"end_us", ledger.end},
          {"communication_us", t.communication},
          {"exposed_us", t.exposed},
          {"waited_us", t.waited},
          {"hidden_share", t.hidden_share()},
          {"entries", entries},
          {"waits_us", waits}};
}

TextTable what_if_table(std::span<const WhatIf> all, double measured_us, double floor_us) {
  TextTable table = {{"what if", "calls", "step ms", "predicted ms", "roofline ms", "communication ms",
                      "exposed ms", "hidden"}};
  for (const WhatIf& w : all) {
    const OverlapTotals t = totals_of(w.ledger);
    table.push_back({w.change, fmt::format("{}", w.ledger.entries.size()),
                     &w == all.data() ? ms_of(measured_us) : "-", ms_of(w.ledger.end), ms_of(floor_us),
                     ms_of(t.communication), ms_of(t.exposed), percent(t.hidden_share())});
  }
  return table;
}

Json what_if_json(std::span<const WhatIf> all) {
  Json list = Json::array();
  for (const WhatIf& w : all) {
    const OverlapTotals t = totals_of(w.ledger);
    list.push_back({{"change", w.change},
                    {"calls", w.ledger.entries.size()},
                    {"predicted_ms", w.ledger.end / 1e3},
                    {"communication_ms", t.communication / 1e3},
                    {"exposed_ms", t.exposed / 1e3},
                    {"hidden_share", t.hidden_share()}});
  }
  return list;
}

}  // namespace kiln
