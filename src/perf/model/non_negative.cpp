#include "perf/model/non_negative.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace kiln {
namespace {

constexpr int kMostRounds = 3000;
constexpr double kSmallest = 1e-12;  // of a scaled unknown: less than that changes nothing

}  // namespace

// Coordinate descent on the normal equations: each unknown in turn takes its best value, or 0.
std::vector<double> non_negative_least_squares(std::span<const std::vector<double>> rows,
                                               std::span<const double> y) {
  if (rows.empty() || rows.size() != y.size()) throw Error("a fit needs rows, and one value for each");
  const std::size_t n = rows.front().size();
  std::vector<double> scale(n), normal(n * n), right(n), x(n);
  for (const std::vector<double>& row : rows)
    for (std::size_t i = 0; i < n; ++i) scale[i] += row[i] * row[i];
  for (double& s : scale) s = s > 0 ? std::sqrt(s) : 1;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t i = 0; i < n; ++i) {
      const double a = rows[r][i] / scale[i];
      right[i] += a * y[r];
      for (std::size_t j = 0; j < n; ++j) normal[i * n + j] += a * rows[r][j] / scale[j];
    }
  }
  double change = 1;
  for (int round = 0; round < kMostRounds && change > kSmallest; ++round) {
    change = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (normal[i * n + i] <= 0) continue;
      const double rest =
          std::inner_product(x.begin(), x.end(), &normal[i * n], 0.0) - normal[i * n + i] * x[i];
      const double best = std::max(0.0, (right[i] - rest) / normal[i * n + i]);
      change = std::max(change, std::abs(best - x[i]));
      x[i] = best;
    }
  }
  for (std::size_t i = 0; i < n; ++i) x[i] /= scale[i];
  return x;
}

}  // namespace kiln
