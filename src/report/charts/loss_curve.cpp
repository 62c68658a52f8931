#include "report/charts/loss_curve.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "base/plain_number.h"

namespace kiln {
namespace {

// The mean of each column's points; NaN where it has none.
std::vector<double> columns_of(std::span<const double> values, int width) {
  const auto n = static_cast<int64_t>(values.size());
  std::vector<double> columns;
  const int64_t count = std::min<int64_t>(width, n);
  for (int64_t c = 0; c < count; ++c) {
    double sum = 0;
    int64_t finite = 0;
    for (int64_t i = c * n / count; i < (c + 1) * n / count; ++i) {
      if (!std::isfinite(values[static_cast<std::size_t>(i)])) continue;
      sum += values[static_cast<std::size_t>(i)];
      ++finite;
    }
    columns.push_back(finite == 0 ? NAN : sum / static_cast<double>(finite));
  }
  return columns;
}

}  // namespace

std::string draw_curve(std::span<const double> values, int width, int height) {
  if (width < 1 || height < 2) return {};
  const std::vector<double> columns = columns_of(values, width);
  double low = INFINITY, high = -INFINITY;
  for (double c : columns) {
    if (std::isnan(c)) continue;
    low = std::min(low, c);
    high = std::max(high, c);
  }
  if (low > high) return {};
  const double span = high > low ? high - low : 1;
  std::string chart;
  for (int row = 0; row < height; ++row) {
    char scale[32] = "";
    if (row == 0) std::snprintf(scale, sizeof scale, "%s", plain(high, 4).c_str());
    if (row + 1 == height) std::snprintf(scale, sizeof scale, "%s", plain(low, 4).c_str());
    char line[40];
    std::snprintf(line, sizeof line, "%8s |", scale);
    chart += line;
    for (double c : columns) {
      const auto at = static_cast<int>(std::lround((high - c) / span * (height - 1)));
      chart += !std::isnan(c) && at == row ? '*' : ' ';
    }
    while (chart.back() == ' ') chart.pop_back();
    chart += '\n';
  }
  return chart;
}

}  // namespace kiln
