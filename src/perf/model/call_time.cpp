#include "perf/model/call_time.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "perf/model/non_negative.h"

namespace kiln {
namespace {

constexpr double kLeastSeconds = 1e-9;

// rows, columns, and what is done for each element of what is written: of a matmul twice its inner extent.
SmoothFit::At coordinates(const CallShape& s) {
  const double work = s.flops > 0 ? s.flops : s.bytes;
  return {std::log(s.rows), std::log(s.columns), std::log(std::max(work, 1.0) / (s.rows * s.columns))};
}

// The call; its operations and bytes; its rows; what it writes; and the operands of a matmul, which are
// packed or read again: rows x inner and columns x inner.
std::vector<double> terms(const CallShape& s) {
  const double inner = s.flops / (2 * s.rows * s.columns);
  return {1, s.flops, s.bytes, s.rows, s.rows * s.columns, s.rows * inner, s.columns * inner};
}

}  // namespace

CallTime::CallTime(const CallCurve& curve) {
  // Relative to what was measured: a call of a microsecond counts as much as one of a second.
  std::vector<std::vector<double>> rows;
  for (const CalibratedCall& call : curve.calls) {
    rows.push_back(terms(call.shape));
    for (double& term : rows.back()) term /= call.seconds;
  }
  rates_ = non_negative_least_squares(rows, std::vector<double>(rows.size(), 1.0));
  std::vector<SmoothFit::At> at;
  std::vector<double> beside;
  for (const CalibratedCall& call : curve.calls) {
    at.push_back(coordinates(call.shape));
    beside.push_back(std::log(call.seconds / sum(call.shape)));
  }
  beside_ = SmoothFit::likeliest(at, beside);
}

double CallTime::sum(const CallShape& shape) const {
  const std::vector<double> t = terms(shape);
  return std::max(kLeastSeconds, std::inner_product(t.begin(), t.end(), rates_.begin(), 0.0));
}

double CallTime::seconds(const CallShape& shape) const {
  return sum(shape) * std::exp((*beside_)(coordinates(shape)));
}

double CallTime::distance(const CallShape& shape) const { return beside_->distance(coordinates(shape)); }

}  // namespace kiln
