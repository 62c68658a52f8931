#include "perf/comm/overlap_replay.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "dist/strategy/buckets.h"

namespace kiln {
namespace {

struct Planned {
  std::string name;
  int64_t bytes = 0;
  double ready = 0;
};

std::vector<Planned> planned_buckets(const ComputeTimeline& compute, const BucketOptions& form) {
  std::vector<ReadyGradient> gradients = compute.gradients;
  std::sort(gradients.begin(), gradients.end(),
            [](const ReadyGradient& a, const ReadyGradient& b) { return a.offset < b.offset; });
  std::vector<int64_t> bytes;
  bytes.reserve(gradients.size());
  for (const ReadyGradient& g : gradients) bytes.push_back(g.bytes);
  std::vector<Planned> buckets;
  for (const std::vector<int>& members : assign_buckets(bytes, form.cap)) {
    Planned& b = buckets.emplace_back();
    for (const int i : members) {
      const ReadyGradient& g = gradients[static_cast<std::size_t>(i)];
      b.bytes += g.bytes;
      b.ready = std::max(b.ready, g.ready);
    }
    b.name = gradients[static_cast<std::size_t>(members.front())].name;
    if (members.size() > 1) b.name += cat(" and ", members.size() - 1, " more");
  }
  return buckets;
}

Collective collective_of(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(Collective::barrier); ++i) {
    if (name_of(static_cast<Collective>(i)) == name) return static_cast<Collective>(i);
  }
  throw Error(cat("no collective is called ", name));
}

}  // namespace

ComputeTimeline compute_of(const OverlapLedger& ledger) {
  constexpr double kFirst = std::numeric_limits<double>::lowest();
  const auto without_waits = [&](double t) { return t - covered(ledger.waits, {kFirst, t}); };
  ComputeTimeline c;
  c.backward_begin = without_waits(ledger.backward_begin);
  c.backward_end = without_waits(ledger.backward_end);
  c.end = without_waits(ledger.end);
  c.gradients = ledger.gradients;
  for (ReadyGradient& g : c.gradients) g.ready = without_waits(g.ready);
  for (const LedgerEntry& e : ledger.entries) {
    if (!e.bucket) c.others.push_back(e);
  }
  return c;
}

ComputeTimeline last_of(std::span<const ComputeTimeline> ranks) {
  if (ranks.empty()) throw Error("no rank has a timeline");
  ComputeTimeline last = ranks.front();
  for (const ComputeTimeline& r : ranks.subspan(1)) {
    if (r.gradients.size() != last.gradients.size()) throw Error("ranks have different gradients");
    last.backward_begin = std::max(last.backward_begin, r.backward_begin);
    last.backward_end = std::max(last.backward_end, r.backward_end);
    last.end = std::max(last.end, r.end);
    for (std::size_t i = 0; i < last.gradients.size(); ++i)
      last.gradients[i].ready = std::max(last.gradients[i].ready, r.gradients[i].ready);
  }
  return last;
}

CallSeconds seconds_on(const LinkModel& link, int ranks, CommAlgorithm algorithm) {
  return [=](std::string_view collective, int64_t bytes) {
    CommCall call;
    call.what = collective_of(collective);
    call.dtype = DType::u8;
    call.count = bytes;
    return link_seconds(link, algorithm, call, ranks);
  };
}

OverlapLedger replay(const ComputeTimeline& compute, const BucketOptions& form, const CallSeconds& seconds) {
  OverlapLedger ledger;
  ledger.backward_begin = compute.backward_begin;
  ledger.gradients = compute.gradients;
  const std::vector<Planned> buckets = planned_buckets(compute, form);
  const auto in_flight = static_cast<std::size_t>(form.in_flight);
  double late = 0;  // how far compute has fallen behind by stalls
  struct Stall {
    double at, us;  // of the compute
  };
  std::vector<Stall> stalls;
  double here = 0;  // of the rank
  double link_free = 0;
  bool after = !form.as_ready;  // backward is over
  const auto wait_until = [&](double t) {
    if (t <= here) return;
    ledger.waits.push_back({here, t});
    stalls.push_back({here - late, t - here});
    late += t - here;
    here = t;
  };
  if (after) here = ledger.backward_end = compute.backward_end;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const double own = after ? here : std::min(buckets[i].ready, compute.backward_end) + late;
    here = std::max(here, own);  // a bucket that is ready before the one in front of it waits for its turn
    if (i >= in_flight) wait_until(ledger.entries[i - in_flight].end);
    LedgerEntry e;
    e.name = buckets[i].name;
    e.collective = name_of(Collective::all_reduce);
    e.bytes = buckets[i].bytes;
    e.ready = after ? buckets[i].ready : own;
    e.start = std::max(here, link_free);
    e.end = link_free = e.start + 1e6 * seconds(e.collective, e.bytes);
    ledger.entries.push_back(std::move(e));
  }
  if (!after) here = ledger.backward_end = std::max(here, compute.backward_end + late);
  wait_until(link_free);
  ledger.sums_end = here;
  for (const LedgerEntry& other : compute.others) {
    LedgerEntry e = other;
    e.ready = e.start = here;
    e.end = here + 1e6 * seconds(e.collective, e.bytes);
    wait_until(e.end);
    ledger.entries.push_back(std::move(e));
  }
  ledger.end = here + (compute.end - compute.backward_end);
  for (ReadyGradient& g : ledger.gradients) {
    const double then = g.ready;  // by the clock of the compute, as the stalls are
    for (const Stall& s : stalls) g.ready += s.at < then ? s.us : 0;
  }
  check_entries(ledger);
  return ledger;
}

double communication_alone(const ComputeTimeline& compute, const BucketOptions& form,
                           const CallSeconds& seconds) {
  double us = 0;
  for (const Planned& b : planned_buckets(compute, form))
    us += 1e6 * seconds(name_of(Collective::all_reduce), b.bytes);
  for (const LedgerEntry& e : compute.others) us += 1e6 * seconds(e.collective, e.bytes);
  return us;
}

std::vector<WhatIf> what_ifs(const ComputeTimeline& compute, const BucketOptions& form, const LinkModel& link,
                             int ranks) {
  std::vector<WhatIf> all;
  all.push_back({"as it is", replay(compute, form, seconds_on(link, ranks))});
  LinkModel faster = link;
  faster.bandwidth *= 2;
  all.push_back({"bandwidth x2", replay(compute, form, seconds_on(faster, ranks))});
  if (form.cap > 0 && std::isfinite(form.cap)) {
    BucketOptions larger = form;
    larger.cap *= 4;
    all.push_back({"bucket x4", replay(compute, larger, seconds_on(link, ranks))});
  }
  return all;
}

}  // namespace kiln
