#include "perf/model/time_model.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "perf/timing/statistics.h"

namespace kiln {
namespace {

double bound(const Rates& rates, double flops, double bytes) {
  return std::max(flops / rates.flops, bytes / rates.bytes);
}

double rate_of(const MatmulRates& rates, std::string_view dtype) {
  for (const auto& [name, rate] : rates)
    if (name == dtype) return rate;
  throw Error(cat("the device whose curves are taken has no matmul rate of ", dtype),
              "choose another --precision", ErrorKind::usage);
}

}  // namespace

std::string_view name_of(TimeKind k) { return k == TimeKind::roofline ? "roofline" : "predicted"; }

TimeModel::TimeModel(Hardware hardware, DType compute)
    : hardware_(std::move(hardware)),
      compute_(compute),
      rates_{hardware_.flops_of(name_of(compute)), hardware_.copy_rate()} {
  if (!hardware_.calibration) return;
  const bool own = hardware_.calibrated_on.empty();
  curve_rates_ =
      own ? rates_ : Rates{rate_of(hardware_.curve_flops, name_of(compute)), hardware_.curve_bytes_per_s};
  std::map<OpClass, std::vector<double>> classes;
  for (const CallCurve& curve : hardware_.calibration->curves) {
    if (curve.key.compute != name_of(compute)) continue;
    std::vector<double>& all = classes[class_of(curve.key.op)];
    for (const CalibratedCall& call : curve.calls)
      all.push_back(std::log(call.seconds / bound(curve_rates_, call.shape.flops, call.shape.bytes)));
    calls_.try_emplace(curve.key, curve);
  }
  for (auto& [what, values] : classes) classes_[what] = summarize(std::move(values)).p50;
}

TimeModel::~TimeModel() = default;
TimeModel::TimeModel(TimeModel&&) noexcept = default;

bool TimeModel::calibrated() const { return !calls_.empty(); }

double TimeModel::roofline(const Cost& cost) const { return bound(rates_, cost.flops, cost.bytes); }

const CallTime* TimeModel::calls_of(const TimedOp& op) const {
  const auto calls = calls_.find(key_of(op, compute_));
  return calls == calls_.end() ? nullptr : &calls->second;
}

bool TimeModel::knows(const TimedOp& op) const { return calls_of(op) != nullptr; }

double TimeModel::distance_of_class(OpClass c) const {
  const auto known = classes_.find(c);
  return known == classes_.end() ? 0 : known->second;
}

double TimeModel::seconds(const TimedOp& op) const {
  const double least = roofline(op.cost);
  if (!calibrated()) return least;
  const CallTime* calls = calls_of(op);
  if (calls == nullptr) return least * std::exp(distance_of_class(class_of(op.op)));
  if (least <= 0) return 0;
  // On the device itself the last factor is 1.
  return calls->seconds(shape_of(op)) * least / bound(curve_rates_, op.cost.flops, op.cost.bytes);
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
