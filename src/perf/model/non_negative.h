// Least squares whose unknowns are times or rates, and so not below 0.
#pragma once

#include <span>
#include <vector>

namespace kiln {

// The x >= 0 for which the sum over i of (rows[i] . x - y[i])^2 is least. Each row has as many numbers as x;
// columns may differ in size by any power of ten.
std::vector<double> non_negative_least_squares(std::span<const std::vector<double>> rows,
                                               std::span<const double> y);

}  // namespace kiln
