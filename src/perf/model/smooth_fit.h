// A smooth function through scattered points: what lies between measured shapes is read from it.
#pragma once

#include <array>
#include <vector>

namespace kiln {

// Gaussian-process regression with a constant mean: close to the points it passes near them, far from all of
// them it returns to their mean. Coordinates are logarithms, so a length of 1 is a factor of e.
class SmoothFit {
 public:
  static constexpr std::size_t kDims = 3;
  using At = std::array<double, kDims>;
  struct Options {
    double length = 2;    // over which neighbours tell of each other
    double noise = 0.03;  // of a point, in units of y
    double spread = 0.5;  // of y about its mean
  };

  SmoothFit(std::vector<At> points, const std::vector<double>& y, const Options& options);
  SmoothFit(std::vector<At> points, const std::vector<double>& y)
      : SmoothFit(std::move(points), y, Options{}) {}

  // With the options under which the points are likeliest, out of a few.
  static SmoothFit likeliest(const std::vector<At>& points, const std::vector<double>& y);

  double operator()(const At& x) const;
  double log_likelihood() const { return log_likelihood_; }  // of its points, but for a constant
  // How far the nearest point is.
  double distance(const At& x) const;

 private:
  double near(const At& a, const At& b) const;

  Options options_;
  std::vector<At> points_;
  std::vector<double> weights_;
  double mean_ = 0, log_likelihood_ = 0;
};

}  // namespace kiln
