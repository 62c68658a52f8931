#include "studies/precision/sum_prediction.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <vector>

namespace kiln {
namespace {

// Mean and variance of what rounding to multiples of a spacing does to the terms, once for each spacing.
class TermRounding {
 public:
  struct Moments {
    double mean, variance;
  };
  explicit TermRounding(std::span<const double> terms) : terms_(terms) {}

  const Moments& at(double spacing) {
    const auto [it, fresh] = known_.try_emplace(std::ilogb(spacing));
    if (fresh) it->second = measure(spacing);
    return it->second;
  }

 private:
  Moments measure(double spacing) const {
    double sum = 0, squares = 0;
    for (double x : terms_) {
      const double e = std::nearbyint(x / spacing) * spacing - x;
      sum += e;
      squares += e * e;
    }
    const double n = static_cast<double>(terms_.size()), mean = sum / n;
    return {mean, squares / n - mean * mean};
  }

  std::span<const double> terms_;
  std::map<int, Moments> known_;
};

}  // namespace

double spacing_if_rounded(double x, const FloatFormat& format) {
  const double spacing = format.spacing(x);
  return std::nearbyint(x / spacing) * spacing == x ? 0 : spacing;
}

SumPrediction predict_sum(std::span<const double> terms, const FloatFormat& format, SumMethod method) {
  SumPrediction f;
  TermRounding rounding(terms);
  double exact = 0, before = 0, size = 0;
  for (double x : terms) {
    exact += x;
    size += std::abs(x);
    const double spacing = format.spacing(exact + f.bias);
    f.worst += spacing / 2;
    if (method == SumMethod::stochastic) {
      const double part = x / spacing, up = part - std::floor(part);
      f.variance += up * (1 - up) * spacing * spacing;
      f.worst += spacing / 2;
    } else if (spacing > before) {
      f.variance += std::pow(spacing_if_rounded(exact, format), 2) / 12;
    } else {
      const TermRounding::Moments& m = rounding.at(spacing);
      f.bias += m.mean;
      f.variance += m.variance;
    }
    before = spacing;
  }
  // Kahan's sum is within 2 u + O(n u^2) of the exact one, relative to the sum of sizes. Likely are one
  // rounding of the result, and one of each term on its way in.
  if (method == SumMethod::kahan) {
    const double spacing = format.spacing(exact), u = format.unit_roundoff();
    f = {0, spacing * spacing / 12, (2 * u + static_cast<double>(terms.size()) * u * u) * size};
    for (double x : terms) f.variance += std::pow(spacing_if_rounded(x, format), 2) / 12;
  }
  return f;
}

SumPrediction predict_tree(std::span<const double> terms, const FloatFormat& format) {
  SumPrediction f;
  std::vector<double> level(terms.begin(), terms.end());
  while (level.size() > 1) {
    std::vector<double> above;
    for (std::size_t i = 0; i + 1 < level.size(); i += 2) {
      above.push_back(level[i] + level[i + 1]);
      f.variance += std::pow(spacing_if_rounded(above.back(), format), 2) / 12;
      f.worst += format.spacing(above.back()) / 2;
    }
    if (level.size() % 2 == 1) above.push_back(level.back());
    level = std::move(above);
  }
  return f;
}

std::vector<SumPrediction> predict_average(std::span<const double> sample, double rate, int steps,
                                           const FloatFormat& format, SumMethod method) {
  const double count = static_cast<double>(sample.size()), keeps = 1 - rate;
  double mean_x = 0;
  for (double x : sample) mean_x += x / count;
  std::vector<SumPrediction> after;
  SumPrediction f;
  double exact = 0;
  for (int step = 0; step < steps; ++step) {
    const double kept = exact + f.bias;  // where the rounded average is likely to be
    double spacing = format.spacing(kept + rate * (mean_x - kept));
    double mean = 0, square = 0, widest = spacing;  // of the rounding
    if (method == SumMethod::kahan) widest = 0;
    for (double x : sample) {
      const double increment = rate * (x - kept);
      if (method == SumMethod::kahan) widest = std::max(widest, spacing = format.spacing(increment));
      const double part = increment / spacing, up = part - std::floor(part);
      const double e = std::nearbyint(part) - part;
      mean += method == SumMethod::stochastic ? 0 : e * spacing / count;
      square += (method == SumMethod::stochastic ? up * (1 - up) : e * e) * spacing * spacing / count;
    }
    if (mean * mean < 4 * square / count)
      mean = 0;  // no bias that so small a sample could distinguish from none
    exact += rate * (mean_x - exact);
    f.bias = keeps * f.bias + mean;
    f.variance = keeps * keeps * f.variance + square - mean * mean;
    f.worst = keeps * f.worst + (method == SumMethod::stochastic ? widest : widest / 2);
    after.push_back(f);
  }
  return after;
}

}  // namespace kiln
