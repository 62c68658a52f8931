#include "perf/timing/op_times.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "ops/op_list.h"

namespace kiln {

std::string_view name_of(OpClass c) {
  constexpr std::array<std::string_view, kOpClasses> kNames = {
      "gemm", "linear_cross_entropy", "attention", "pointwise", "adamw", "scalars"};
  return kNames[static_cast<std::size_t>(c)];
}

OpClass class_of(std::string_view op) {
  switch (kind_of_op(op)) {
    case OpKind::gemm:
    case OpKind::attention_gemm:
      return OpClass::gemm;
    case OpKind::gemm_loss:
      return OpClass::head;
    case OpKind::attention:
    case OpKind::attention_softmax:
      return OpClass::attention;
    case OpKind::optimizer:
      return OpClass::update;
    case OpKind::scalars:
      return OpClass::scalars;
    default:
      return OpClass::pointwise;
  }
}

double TimedOp::floor_ms(const Rates& best) const {
  return 1e3 * std::max(cost.flops / best.flops, cost.bytes / best.bytes);
}

std::string_view step_pass(const TimedOp& op) {
  if (class_of(op.op) == OpClass::update || class_of(op.op) == OpClass::scalars) return "update";
  if (op.pass == Pass::backward) return "backward";  // of what was recomputed, too
  return op.recomputed ? "recomputed" : "forward";
}

OpTimes::OpTimes(RankContext& ctx) : ctx_(ctx), marks_(ctx) { ctx.add_observer(this); }

OpTimes::~OpTimes() { ctx_.remove_observer(this); }

void OpTimes::on_op_begin(RankContext&, const OpEvent& e) {
  if (depth_++ > 0) return;
  TimedOp op{e.op, e.variant, e.pass, e.recomputed, e.cost};
  const auto first = std::find_if(e.outputs.begin(), e.outputs.end(), [](const NamedTensor& t) {
    return t.tensor.defined() && t.tensor.numel() > 0;
  });
  if (first != e.outputs.end()) {
    const Shape& shape = first->tensor.shape();
    op.dtype = first->tensor.dtype();
    op.columns = shape.rank() > 0 ? shape[shape.rank() - 1] : 1;
    op.rows = first->tensor.numel() / op.columns;
  }
  ops_.push_back(op);
  marks_.mark();
}

void OpTimes::on_op_end(RankContext&, const OpEvent&) {
  if (--depth_ == 0) marks_.mark();
}

void OpTimes::clear() {
  ops_.clear();
  marks_.clear();
  depth_ = 0;
}

std::vector<TimedOp> OpTimes::take() const {
  std::vector<TimedOp> ops = ops_;
  for (std::size_t i = 0; i < ops.size(); ++i) ops[i].ms = marks_.ms_between(2 * i, 2 * i + 1);
  return ops;
}

std::vector<double> OpTimes::gaps_ms() const {
  std::vector<double> gaps(ops_.size(), 0);
  for (std::size_t i = 1; i < gaps.size(); ++i) gaps[i] = marks_.ms_between(2 * i - 1, 2 * i);
  return gaps;
}

std::vector<ClassTime> by_class(const std::vector<TimedOp>& ops, const Rates& best) {
  std::array<ClassTime, kOpClasses> all{};
  for (int i = 0; i < kOpClasses; ++i) all[static_cast<std::size_t>(i)].what = static_cast<OpClass>(i);
  for (const TimedOp& op : ops) {
    ClassTime& c = all[static_cast<std::size_t>(class_of(op.op))];
    ++c.calls;
    c.ms += op.ms;
    c.floor_ms += op.floor_ms(best);
    c.cost = c.cost + op.cost;
  }
  std::vector<ClassTime> rows;
  std::copy_if(all.begin(), all.end(), std::back_inserter(rows),
               [](const ClassTime& c) { return c.calls > 0; });
  return rows;
}

std::vector<OpTotal> by_op(const std::vector<TimedOp>& ops, const Rates& best) {
  std::vector<OpTotal> rows;
  for (const TimedOp& op : ops) {
    auto row = std::find_if(rows.begin(), rows.end(), [&](const OpTotal& t) {
      return t.op.op == op.op && t.op.variant == op.variant && t.op.pass == op.pass &&
             t.op.recomputed == op.recomputed;
    });
    if (row == rows.end()) {
      row = rows.insert(rows.end(), {op, 0, 0});
      row->op.ms = 0;
      row->op.cost = {};
    }
    ++row->calls;
    row->op.ms += op.ms;
    row->op.cost = row->op.cost + op.cost;
    row->floor_ms += op.floor_ms(best);
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const OpTotal& a, const OpTotal& b) { return a.op.ms > b.op.ms; });
  return rows;
}

std::vector<TimedOp> median_ops(const std::vector<std::vector<TimedOp>>& steps) {
  if (steps.empty()) return {};
  std::vector<TimedOp> ops = steps.front();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    std::vector<double> samples;
    for (const std::vector<TimedOp>& step : steps) {
      if (step.size() != ops.size() || step[i].op != ops[i].op)
        throw Error(cat("two steps ran different ops: ", ops.size(), " and ", step.size(), ", the ", i + 1,
                        "th was ", ops[i].op));
      samples.push_back(step[i].ms);
    }
    ops[i].ms = summarize(std::move(samples)).p50;
  }
  return ops;
}

}  // namespace kiln
