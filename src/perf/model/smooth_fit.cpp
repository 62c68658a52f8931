#include "perf/model/smooth_fit.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/error.h"

namespace kiln {
namespace {

double squared_distance(const SmoothFit::At& a, const SmoothFit::At& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

// Of a symmetric positive matrix, its lower triangle by rows, in place.
void cholesky(std::vector<double>& m, std::size_t n) {
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t i = j; i < n; ++i) {
      double sum = m[i * n + j];
      for (std::size_t k = 0; k < j; ++k) sum -= m[i * n + k] * m[j * n + k];
      if (i == j && !(sum > 0)) throw Error("points of a fit are too close to each other to be told apart");
      m[i * n + j] = i == j ? std::sqrt(sum) : sum / m[j * n + j];
    }
  }
}

std::vector<double> solved(const std::vector<double>& lower, std::vector<double> b) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) b[i] -= lower[i * n + k] * b[k];
    b[i] /= lower[i * n + i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) b[i] -= lower[k * n + i] * b[k];
    b[i] /= lower[i * n + i];
  }
  return b;
}

}  // namespace

SmoothFit::SmoothFit(std::vector<At> points, const std::vector<double>& y, const Options& options)
    : options_(options), points_(std::move(points)) {
  const std::size_t n = points_.size();
  if (n == 0 || y.size() != n) throw Error("a fit needs points, and one value for each");
  std::vector<double> matrix(n * n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j)
      matrix[i * n + j] = near(points_[i], points_[j]) + (i == j ? options_.noise * options_.noise : 0);
  cholesky(matrix, n);
  // The mean that makes the points likeliest: neighbours count as less than strangers.
  const std::vector<double> ones = solved(matrix, std::vector<double>(n, 1.0));
  const double all = std::accumulate(ones.begin(), ones.end(), 0.0);
  mean_ = std::inner_product(ones.begin(), ones.end(), y.begin(), 0.0) / all;
  std::vector<double> rest(n);
  std::transform(y.begin(), y.end(), rest.begin(), [&](double v) { return v - mean_; });
  weights_ = solved(matrix, rest);
  log_likelihood_ = -0.5 * std::inner_product(rest.begin(), rest.end(), weights_.begin(), 0.0);
  for (std::size_t i = 0; i < n; ++i) log_likelihood_ -= std::log(matrix[i * n + i]);
}

SmoothFit SmoothFit::likeliest(const std::vector<At>& points, const std::vector<double>& y) {
  std::optional<SmoothFit> best;
  for (const double length : {1.0, 2.0, 4.0}) {
    for (const double noise : {0.02, 0.06}) {
      for (const double spread : {0.1, 0.4}) {
        SmoothFit fit(points, y, {.length = length, .noise = noise, .spread = spread});
        if (!best || fit.log_likelihood_ > best->log_likelihood_) best = std::move(fit);
      }
    }
  }
  return std::move(*best);
}

double SmoothFit::near(const At& a, const At& b) const {
  return options_.spread * options_.spread *
         std::exp(-0.5 * squared_distance(a, b) / (options_.length * options_.length));
}

double SmoothFit::operator()(const At& x) const {
  double sum = mean_;
  for (std::size_t i = 0; i < points_.size(); ++i) sum += weights_[i] * near(x, points_[i]);
  return sum;
}

double SmoothFit::distance(const At& x) const {
  double least = squared_distance(x, points_.front());
  for (const At& p : points_) least = std::min(least, squared_distance(x, p));
  return std::sqrt(least);
}

}  // namespace kiln
