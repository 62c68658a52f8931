// The ranges of a traced step, and who waited for whom in it.
#include <algorithm>
#include <cmath>

#include "ops/op_list.h"
#include "perf/trace/trace_tables.h"

namespace kiln {
namespace {

// What one op adds to every range it is in.
struct OpShare {
  int kernels = 0;
  double ms = 0, idle_ms = 0, dispatch_ms = 0;
};

// Spans that are in the line of the step's own work: a batch that crosses on its own stream does not.
bool in_line(const TraceSpan& s) { return s.op >= 0 || s.lane == TraceLane::cpu || s.lane == TraceLane::gpu; }

bool on_cpu(const Trace& t) {
  return std::none_of(t.spans.begin(), t.spans.end(),
                      [](const TraceSpan& s) { return s.lane == TraceLane::gpu; });
}

struct Line {
  std::vector<OpShare> ops;
  OpShare nobody;
  double busy_ms = 0, idle_ms = 0;
};

// Time without a kernel counts to the kernel that ends it: what had to happen before it could begin.
Line walk(const Trace& t) {
  Line line;
  line.ops.resize(t.ops.size());
  const bool cpu = on_cpu(t);
  double now = t.begin_us;
  for (const TraceSpan& s : t.spans) {
    if (!in_line(s)) continue;
    OpShare& share = s.op >= 0 ? line.ops[static_cast<std::size_t>(s.op)] : line.nobody;
    const double idle = std::max(0.0, s.begin_us - now) / 1e3;
    const double busy = std::max(0.0, s.end_us - std::max(s.begin_us, now)) / 1e3;
    ++share.kernels;
    share.ms += s.us() / 1e3;
    share.idle_ms += idle;
    if (cpu) share.dispatch_ms += idle;
    line.idle_ms += idle;
    line.busy_ms += busy;
    now = std::max(now, s.end_us);
  }
  const double tail = std::max(0.0, t.end_us - now) / 1e3;
  line.nobody.idle_ms += tail;
  line.idle_ms += tail;
  if (cpu) line.nobody.dispatch_ms += tail;
  if (cpu || t.replayed) return line;
  for (std::size_t i = 0; i < t.ops.size(); ++i) {
    const double from = i == 0 ? t.ops[i].begin_us : t.ops[i - 1].end_us;
    line.ops[i].dispatch_ms += std::max(0.0, t.ops[i].end_us - from) / 1e3;
  }
  return line;
}

void add_share(RangeRow& row, const OpShare& s) {
  row.kernels += s.kernels;
  row.ms += s.ms;
  row.idle_ms += s.idle_ms;
  row.dispatch_ms += s.dispatch_ms;
}

// linear_cross_entropy may have all its matmuls in forward: each counts where it ran.
double head_flops(const TracedOp& op, const ModelWork& model) {
  if (model.head <= 0) return 0;
  return model.head * std::min(op.backward ? 2.0 : 3.0, std::floor(op.cost.flops / model.head + 0.01));
}

void add_op(RangeRow& row, const TracedOp& op, const OpShare& share, const OpRates& rates,
            const ModelWork& model) {
  add_share(row, share);
  ++row.ops;
  row.cost = row.cost + op.cost;
  const OpKind kind = kind_of_op(op.op);
  const bool attention = kind == OpKind::attention, product = kind == OpKind::attention_gemm;
  row.dense_flops += op.cost.flops * (attention ? model.unmasked : 1);
  const double floor = 1e3 * std::max(op.cost.flops / rates.best.flops, op.cost.bytes / rates.best.bytes);
  row.floor_ms += floor;
  row.predicted_ms += std::max(floor, rates.smallest_ms);
  if (op.recomputed) return;
  const double passes = op.backward ? 2 : 1;  // backward is twice forward
  if (attention || product) {
    const double part = product ? 0.5 : 1;  // composed: each of its two matmuls
    row.model_causal += part * passes * model.attention_causal;
    row.model_dense += part * passes * model.attention_dense;
  } else if (kind == OpKind::gemm || kind == OpKind::gemm_loss) {
    const double flops = kind == OpKind::gemm ? op.cost.flops : head_flops(op, model);
    row.model_causal += flops;
    row.model_dense += flops;
  }
}

// "layers.*.attention.scores" -> "layers.*", "layers.*.attention", and itself.
std::vector<std::string> ancestors(const std::string& scope) {
  std::vector<std::string> all;
  for (std::size_t dot = scope.find('.'); dot != std::string::npos; dot = scope.find('.', dot + 1)) {
    if (dot + 1 < scope.size() && scope[dot + 1] == '*') continue;  // a layer and its number are one
    all.push_back(scope.substr(0, dot));
  }
  if (!scope.empty()) all.push_back(scope);
  return all;
}

// The row of a range; a new one goes behind the last of its parent's.
RangeRow& row_of(std::vector<RangeRow>& rows, const std::string& phase, const std::string& range,
                 const std::string& parent) {
  std::size_t after = rows.size();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].phase != phase) continue;
    if (rows[i].range == range) return rows[i];
    if (parent.empty() || rows[i].range == parent || rows[i].range.rfind(parent + ".", 0) == 0) after = i + 1;
  }
  RangeRow row;
  row.phase = phase;
  row.range = range;
  return *rows.insert(rows.begin() + static_cast<std::ptrdiff_t>(after), row);
}

}  // namespace

std::vector<RangeRow> ranges_of(const Trace& trace, const OpRates& rates, const ModelWork& model) {
  const Line line = walk(trace);
  std::vector<RangeRow> rows;
  row_of(rows, "step", "", "");
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    const TracedOp& op = trace.ops[i];
    const std::string phase(name_of(op.phase));
    add_op(rows.front(), op, line.ops[i], rates, model);
    add_op(row_of(rows, phase, "", ""), op, line.ops[i], rates, model);
    if (op.phase == StepPhase::update) continue;  // it has no scopes
    std::string parent;
    for (const std::string& range : ancestors(starred(op.scope))) {
      add_op(row_of(rows, phase, range, parent), op, line.ops[i], rates, model);
      parent = range;
    }
  }
  add_share(rows.front(), line.nobody);
  return rows;
}

std::vector<RangeRow> layers_of(const Trace& trace, const OpRates& rates, const ModelWork& model) {
  constexpr std::string_view kLayers = "layers.";
  const Line line = walk(trace);
  std::vector<RangeRow> rows;
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    const TracedOp& op = trace.ops[i];
    if (op.scope.rfind(kLayers, 0) != 0) continue;
    const std::string layer = op.scope.substr(0, op.scope.find('.', kLayers.size()));
    add_op(row_of(rows, std::string(name_of(op.phase)), layer, ""), op, line.ops[i], rates, model);
  }
  return rows;
}

Dispatch dispatch_of(const Trace& trace, std::optional<PlainStep> plain) {
  const Line line = walk(trace);
  Dispatch d;
  d.wall_ms = trace.ms();
  d.busy_ms = line.busy_ms;
  d.idle_ms = line.idle_ms;
  d.plain = {trace.ms(), line.nobody.dispatch_ms};
  for (const OpShare& s : line.ops) d.plain.host_ms += s.dispatch_ms;
  if (trace.replayed) {
    for (const HostCall& c : trace.calls) d.plain.host_ms += (c.end_us - c.begin_us) / 1e3;
  }
  if (plain) d.plain = *plain;
  d.launches = static_cast<int>(std::count_if(trace.spans.begin(), trace.spans.end(), in_line));
  d.mean_gap_us = d.launches > 0 ? 1e3 * d.idle_ms / d.launches : 0;
  // A tenth of the step: less is not worth another word than busy.
  if (d.idle_share() > 0.1) {
    const bool host_sets_the_pace = on_cpu(trace) || d.host_share() > 0.8;
    d.bound = host_sets_the_pace ? Dispatch::Bound::launch_bound : Dispatch::Bound::waiting;
  }
  return d;
}

}  // namespace kiln
