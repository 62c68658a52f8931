#include "perf/trace/trace_tables.h"

#include <algorithm>
#include <map>

namespace kiln {
namespace {

const TracedOp* op_of(const Trace& t, const TraceSpan& s) {
  return s.op >= 0 ? &t.ops[static_cast<std::size_t>(s.op)] : nullptr;
}

bool holds(const Trace& t, const TraceSpan& s, const PhaseSet& set) {
  const TracedOp* op = op_of(t, s);
  return op != nullptr ? set.has(op->phase) : set.nobody;
}

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

double floor_ms(const Cost& c, const Rates& best) {
  return 1e3 * std::max(c.flops / best.flops, c.bytes / best.bytes);
}

}  // namespace

PhaseSet set_of(StepPhase p) {
  return p == StepPhase::forward ? kForward : p == StepPhase::backward ? kBackward : kUpdate;
}

std::vector<KernelRow> kernels_of(const Trace& trace, const PhaseSet& set, const OpRates& rates) {
  std::vector<double> op_us(trace.ops.size(), 0);
  for (const TraceSpan& s : trace.spans) {
    if (s.op >= 0) op_us[static_cast<std::size_t>(s.op)] += s.us();
  }
  std::map<std::pair<std::string_view, KernelGroup>, KernelRow> rows;
  double total = 0;
  for (const TraceSpan& s : trace.spans) {
    if (!holds(trace, s, set)) continue;
    KernelRow& row = rows[{s.name, s.group}];
    row.group = s.group;
    ++row.calls;
    row.ms += s.us() / 1e3;
    total += s.us() / 1e3;
    const TracedOp* op = op_of(trace, s);
    if (op == nullptr) continue;
    const double all = op_us[static_cast<std::size_t>(s.op)], share = all > 0 ? s.us() / all : 0;
    const double floor = floor_ms(op->cost, rates.best);
    row.floor_ms += share * floor;
    row.predicted_ms += share * std::max(floor, rates.smallest_ms);
  }
  std::vector<KernelRow> sorted;
  for (auto& [key, row] : rows) {
    row.name = key.first;
    row.share = total > 0 ? row.ms / total : 0;
    sorted.push_back(std::move(row));
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const KernelRow& a, const KernelRow& b) { return a.ms > b.ms; });
  return sorted;
}

std::vector<GroupRow> groups_of(const Trace& trace, const PhaseSet& set) {
  std::array<GroupRow, kKernelGroups> all{};
  double total = 0;
  for (const TraceSpan& s : trace.spans) {
    if (!holds(trace, s, set)) continue;
    GroupRow& row = all[static_cast<std::size_t>(s.group)];
    row.group = s.group;
    ++row.calls;
    row.ms += s.us() / 1e3;
    total += s.us() / 1e3;
  }
  std::vector<GroupRow> rows;
  for (GroupRow& row : all) {
    row.share = total > 0 ? row.ms / total : 0;
    if (row.calls > 0) rows.push_back(row);
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const GroupRow& a, const GroupRow& b) { return a.ms > b.ms; });
  return rows;
}

MatmulShare matmul_share(const Trace& trace, const PhaseSet& set, const OpRates& rates) {
  MatmulShare share;
  double predicted = 0, floor = 0;  // of all
  for (const KernelRow& k : kernels_of(trace, set, rates)) {
    share.total_ms += k.ms;
    predicted += k.predicted_ms;
    floor += k.floor_ms;
    if (k.group == KernelGroup::attention) share.attention_ms += k.ms;
    if (k.group != KernelGroup::matmul) continue;
    share.matmul_ms += k.ms;
    share.predicted += k.predicted_ms;
    share.at_the_floor += k.floor_ms;
  }
  if (predicted > 0) share.predicted /= predicted;
  if (floor > 0) share.at_the_floor /= floor;
  return share;
}

std::optional<std::array<AttentionPart, 3>> attention_parts(const Trace& trace, const OpRates& rates) {
  std::array<AttentionPart, 3> parts;
  parts[0].name = "scores";
  parts[1].name = "softmax";
  parts[2].name = "final_matmul";
  auto part_of = [&](const TracedOp& op) -> AttentionPart* {
    if (op.phase != StepPhase::forward || op.recomputed) return nullptr;
    for (AttentionPart& p : parts) {
      if (op.scope == p.name || ends_with(op.scope, "." + p.name)) return &p;
    }
    return nullptr;
  };
  for (const TracedOp& op : trace.ops) {
    AttentionPart* p = part_of(op);
    if (p == nullptr) continue;
    ++p->calls;
    p->cost = p->cost + op.cost;
    const double floor = floor_ms(op.cost, rates.best);
    p->floor_ms += floor;
    p->predicted_ms += std::max(floor, rates.smallest_ms);
  }
  for (const TraceSpan& s : trace.spans) {
    const TracedOp* op = op_of(trace, s);
    AttentionPart* p = op != nullptr ? part_of(*op) : nullptr;
    if (p != nullptr) p->ms += s.us() / 1e3;
  }
  if (std::any_of(parts.begin(), parts.end(), [](const AttentionPart& p) { return p.calls == 0; })) return {};
  return parts;
}

std::vector<OriginRow> origins_of(const Trace& trace) {
  std::map<std::string, OriginRow> rows;
  double total = 0;
  for (const TracedOp& op : trace.ops) ++rows[op.origin].ops;
  for (const TraceSpan& s : trace.spans) {
    const TracedOp* op = op_of(trace, s);
    if (op == nullptr) continue;
    rows[op->origin].ms += s.us() / 1e3;
    total += s.us() / 1e3;
  }
  std::vector<OriginRow> sorted;
  for (auto& [origin, row] : rows) {
    row.origin = origin;
    row.share = total > 0 ? row.ms / total : 0;
    sorted.push_back(row);
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const OriginRow& a, const OriginRow& b) { return a.ms > b.ms; });
  return sorted;
}

int launches_of(const Trace& trace, const PhaseSet& set) {
  return static_cast<int>(std::count_if(trace.spans.begin(), trace.spans.end(),
                                        [&](const TraceSpan& s) { return holds(trace, s, set); }));
}

int ops_of(const Trace& trace, const PhaseSet& set) {
  return static_cast<int>(std::count_if(trace.ops.begin(), trace.ops.end(),
                                        [&](const TracedOp& op) { return set.has(op.phase); }));
}

}  // namespace kiln
