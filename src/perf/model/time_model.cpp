#include "perf/model/time_model.h"

#include <algorithm>
#include <cmath>

#include "perf/timing/statistics.h"

namespace kiln {
namespace {

// rows, columns, and what is done for each element of what is written: of a matmul its inner extent.
SmoothFit::At coordinates(const CallShape& s) {
  const double rows = std::max(s.rows, 1.0), columns = std::max(s.columns, 1.0);
  const double work = s.flops > 0 ? s.flops : s.bytes;
  return {std::log(rows), std::log(columns), std::log(std::max(work, 1.0) / (rows * columns))};
}

double bound(const Rates& rates, double flops, double bytes) {
  return std::max(flops / rates.flops, bytes / rates.bytes);
}

}  // namespace

std::string_view name_of(TimeKind k) { return k == TimeKind::roofline ? "roofline" : "predicted"; }

TimeModel::TimeModel(Hardware hardware, DType compute)
    : hardware_(std::move(hardware)),
      compute_(compute),
      rates_{hardware_.flops_of(name_of(compute)), hardware_.copy_rate()} {
  if (!hardware_.calibration) return;
  std::map<OpClass, std::vector<double>> classes;
  for (const CallCurve& curve : hardware_.calibration->curves) {
    if (curve.key.compute != name_of(compute)) continue;
    std::vector<SmoothFit::At> at;
    std::vector<double> y;
    for (const CalibratedCall& call : curve.calls) {
      at.push_back(coordinates(call.shape));
      y.push_back(std::log(call.seconds / bound(rates_, call.shape.flops, call.shape.bytes)));
    }
    std::vector<double>& all = classes[class_of(curve.key.op)];
    all.insert(all.end(), y.begin(), y.end());
    fits_.try_emplace(curve.key, std::move(at), y);
  }
  for (auto& [what, values] : classes) classes_[what] = summarize(std::move(values)).p50;
}

TimeModel::~TimeModel() = default;
TimeModel::TimeModel(TimeModel&&) noexcept = default;

bool TimeModel::calibrated() const { return !fits_.empty(); }

double TimeModel::roofline(const Cost& cost) const { return bound(rates_, cost.flops, cost.bytes); }

const SmoothFit* TimeModel::fit_of(const TimedOp& op) const {
  const auto fit = fits_.find(key_of(op, compute_));
  return fit == fits_.end() ? nullptr : &fit->second;
}

bool TimeModel::knows(const TimedOp& op) const { return fit_of(op) != nullptr; }

double TimeModel::distance_of_class(OpClass c) const {
  const auto known = classes_.find(c);
  return known == classes_.end() ? 0 : known->second;
}

double TimeModel::seconds(const TimedOp& op) const {
  const double least = roofline(op.cost);
  if (!calibrated()) return least;
  const SmoothFit* fit = fit_of(op);
  return least * std::exp(fit ? (*fit)(coordinates(shape_of(op))) : distance_of_class(class_of(op.op)));
}

StepTime TimeModel::step(std::span<const TimedOp> ops, bool graph) const {
  StepTime t;
  for (const TimedOp& op : ops) {
    const double seconds = this->seconds(op);
    t.ops += seconds;
    if (calibrated() && !knows(op)) t.unknown += seconds;
  }
  if (!calibrated()) return t;
  const Calibration& c = *hardware_.calibration;
  t.between = c.step + (graph ? c.graph_gap : c.dispatch) * static_cast<double>(ops.size());
  return t;
}

}  // namespace kiln
