#include "studies/step/kernel_split.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "ops/op_list.h"
#include "perf/trace/kernel_name.h"

namespace kiln {
namespace {

// While at least one of the step's spans ran, inside of the step.
double busy_us(const Trace& t) {
  double busy = 0, until = t.begin_us;  // all before `until` is counted
  for (const TraceSpan& s : t.spans) {
    const double end = std::min(s.end_us, t.end_us);
    if (end <= until) continue;
    busy += end - std::max(s.begin_us, until);
    until = end;
  }
  return busy;
}

constexpr double kMs = 1e-3;  // of a microsecond

// `in_the_head`: where linear_cross_entropy's goes, which has matmuls and a loss.
KernelPart part_of_op(std::string_view op, KernelPart in_the_head) {
  switch (class_of(op)) {
    case OpClass::gemm:
      return KernelPart::gemm;
    case OpClass::attention:
      return KernelPart::attention;
    case OpClass::update:
      return KernelPart::update;
    case OpClass::scalars:
      return KernelPart::scalars;
    case OpClass::head:
      return in_the_head;
    case OpClass::pointwise:
      break;
  }
  return kind_of_op(op) == OpKind::loss ? KernelPart::loss : KernelPart::pointwise;
}

}  // namespace

std::string_view name_of(KernelPart p) {
  constexpr std::array<std::string_view, kKernelParts> kNames = {"gemm",  "loss",    "attention", "pointwise",
                                                                 "adamw", "scalars", "copies",    "unknown"};
  return kNames[static_cast<std::size_t>(p)];
}

KernelPart part_of(const TraceSpan& span, const TracedOp* op) {
  if (span.lane == TraceLane::copy) return KernelPart::copies;
  if (op == nullptr) return KernelPart::unknown;
  return part_of_op(op->op, of_a_library(span.name) ? KernelPart::gemm : KernelPart::loss);
}

KernelPart part_of(const TimedOp& op) {
  // The fused one has all its matmuls in forward, and only scales in backward.
  const bool scales = op.variant == "fused" && op.pass == Pass::backward;
  return part_of_op(op.op, scales ? KernelPart::loss : KernelPart::gemm);
}

KernelSplit split_of(const std::vector<Trace>& steps) {
  if (steps.empty()) throw Error("no step was traced, so there is nothing to split");
  KernelSplit split;
  split.steps = static_cast<int>(steps.size());
  const double share = 1.0 / split.steps;
  std::array<PartTime, kKernelParts> parts{};
  std::map<std::pair<std::string_view, KernelPart>, KernelTotal> totals;
  for (const Trace& t : steps) {
    split.span_ms += t.ms() * share;
    split.busy_ms += busy_us(t) * kMs * share;
    for (const TraceSpan& s : t.spans) {
      const double ms = s.us() * kMs * share;
      const KernelPart part = part_of(s, s.op >= 0 ? &t.ops[static_cast<std::size_t>(s.op)] : nullptr);
      PartTime& p = parts[static_cast<std::size_t>(part)];
      p.kernels += 1;
      p.ms += ms;
      KernelTotal& total = totals[{s.name, part}];
      total.part = part;
      total.calls += 1;
      total.ms += ms;
      split.sum_ms += ms;
    }
  }
  for (int i = 0; i < kKernelParts; ++i) {
    PartTime& p = parts[static_cast<std::size_t>(i)];
    p.what = static_cast<KernelPart>(i);
    p.kernels /= split.steps;  // whole where every step had the same
    if (p.kernels > 0) split.parts.push_back(p);
  }
  for (auto& [key, total] : totals) {
    total.name = key.first;
    total.calls /= split.steps;
    split.kernels.push_back(std::move(total));
  }
  std::stable_sort(split.kernels.begin(), split.kernels.end(),
                   [](const KernelTotal& a, const KernelTotal& b) { return a.ms > b.ms; });
  return split;
}

std::vector<PartTime> with_rooflines(const KernelSplit& split, const std::vector<TimedOp>& planned,
                                     const Rates& best) {
  std::array<PartTime, kKernelParts> all{};
  std::array<bool, kKernelParts> present{};
  for (const PartTime& p : split.parts) {
    all[static_cast<std::size_t>(p.what)] = p;
    present[static_cast<std::size_t>(p.what)] = true;
  }
  for (const TimedOp& op : planned) {
    const auto at = static_cast<std::size_t>(part_of(op));
    all[at].what = static_cast<KernelPart>(at);
    all[at].roofline_ms += op.floor_ms(best);
    all[at].cost = all[at].cost + op.cost;
    present[at] = true;
  }
  std::vector<PartTime> parts;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (present[i]) parts.push_back(all[i]);
  }
  return parts;
}

}  // namespace kiln
