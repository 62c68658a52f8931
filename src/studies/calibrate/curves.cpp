#include "studies/calibrate/curves.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "autograd/precision.h"
#include "perf/timing/statistics.h"

namespace kiln {
namespace {

constexpr double kSteady = 1.15;  // between two rounds: the error that a prediction on a CPU may have at most

double median(std::vector<double> values) { return summarize(std::move(values)).p50; }

std::tuple<double, double, double, double> order_of(const CallShape& s) {
  return {s.flops, s.bytes, s.rows, s.columns};
}
struct ByShape {
  bool operator()(const CallShape& a, const CallShape& b) const { return order_of(a) < order_of(b); }
};
using CallTimes = std::map<CallShape, std::vector<double>, ByShape>;

double ops_seconds(const TimedStep& timed) {
  double sum = 0;
  for (const TimedOp& op : timed.ops) sum += op.ms / 1e3;
  return sum;
}

}  // namespace

bool keep_all(const CalibrationStep& /*step*/) { return true; }

std::vector<CallCurve> curves_of(std::span<const TimedStep> steps, const KeepStep& keep) {
  std::map<CurveKey, CallTimes> all;
  for (const TimedStep& timed : steps) {
    if (!keep(timed.step)) continue;
    const DType compute = policy_of(timed.step.precision).compute;
    for (const TimedOp& op : timed.ops)
      if (op.ms > 0 && op.cost.flops + op.cost.bytes > 0)
        all[key_of(op, compute)][shape_of(op)].push_back(op.ms / 1e3);
  }
  std::vector<CallCurve> curves;
  for (auto& [key, calls] : all) {
    curves.push_back({key, {}});
    for (auto& [shape, seconds] : calls) curves.back().calls.push_back({shape, median(std::move(seconds))});
  }
  return curves;
}

GapFit fit_gaps(std::span<const TimedStep> steps, bool graph, const KeepStep& keep) {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const TimedStep& timed : steps) {
    if (timed.graph != graph || !keep(timed.step)) continue;
    const auto calls = static_cast<double>(timed.ops.size());
    const double rest = std::max(0.0, median(timed.seconds) - ops_seconds(timed));
    // Relative to the calls, or the longest steps, whose rest is mostly noise, would decide alone.
    const double weight = 1 / (ops_seconds(timed) * ops_seconds(timed) + 1e-12);
    n += weight, x += weight * calls, y += weight * rest;
    xx += weight * calls * calls, xy += weight * calls * rest;
  }
  if (n <= 0) return {};
  const double spread = n * xx - x * x;
  double call = spread > 0 ? (n * xy - x * y) / spread : 0;
  double step = (y - call * x) / n;
  if (call < 0) call = 0, step = y / n;
  if (step < 0) step = 0, call = xx > 0 ? xy / xx : 0;
  return {call, step};
}

double spread_of(std::span<const TimedStep> steps) {
  std::vector<double> all;
  for (const TimedStep& timed : steps) {
    const Timing t = summarize(timed.seconds);
    all.push_back(t.std / t.mean);
  }
  return all.empty() ? 0 : median(std::move(all));
}

bool RoundDrift::steady() const { return least > 1 / kSteady && most < kSteady; }

RoundDrift drift_of(std::span<const TimedStep> steps) {
  RoundDrift drift;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const CalibrationStep& s = steps[i].step;
    const auto first =
        std::find_if(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(i), [&](const TimedStep& t) {
          return t.step.shape == s.shape && t.step.precision == s.precision && t.step.preset == s.preset;
        });
    if (first == steps.begin() + static_cast<std::ptrdiff_t>(i)) continue;
    const double ratio = median(steps[i].seconds) / median(first->seconds);
    drift.least = std::min(drift.least, ratio);
    drift.most = std::max(drift.most, ratio);
    ++drift.models;
  }
  return drift;
}

Calibration fitted(std::span<const TimedStep> steps, const KeepStep& keep) {
  Calibration c;
  c.curves = curves_of(steps, keep);
  const GapFit eager = fit_gaps(steps, false, keep), graph = fit_gaps(steps, true, keep);
  c.dispatch = eager.call;
  c.graph_gap = graph.call;
  c.step = std::max(eager.step, graph.step);
  c.spread = spread_of(steps);
  return c;
}

OwnError leave_one_out(const Hardware& hardware, std::span<const TimedStep> steps) {
  std::set<int> shapes;
  for (const TimedStep& timed : steps) shapes.insert(timed.step.shape);
  std::vector<double> errors;
  for (const int shape : shapes) {
    Hardware others = hardware;
    others.calibration = fitted(steps, [shape](const CalibrationStep& s) { return s.shape != shape; });
    std::map<DType, TimeModel> models;
    for (const TimedStep& timed : steps) {
      if (timed.step.shape != shape) continue;
      const DType compute = policy_of(timed.step.precision).compute;
      const TimeModel& model = models.try_emplace(compute, others, compute).first->second;
      const double predicted = model.step(timed.ops, timed.graph).total();
      errors.push_back(std::abs(predicted / median(timed.seconds) - 1));
    }
  }
  if (errors.empty()) return {};
  const double worst = *std::max_element(errors.begin(), errors.end());
  return {median(errors), worst, static_cast<int>(errors.size())};
}

}  // namespace kiln
