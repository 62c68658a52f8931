#include "perf/comm/link_fit.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/units.h"

namespace kiln {

double LinkFit::step_latency(int ranks) const { return ranks > 1 ? alpha / (2.0 * (ranks - 1)) : 0; }

double LinkFit::bus_bandwidth(int ranks) const {
  return beta > 0 && ranks > 1 ? 2.0 * (ranks - 1) / ranks / beta : 0;
}

std::string LinkFit::bound_by() const {
  if (beta <= 0) return "latency-bound at every size measured";
  if (alpha <= 0) return "bandwidth-bound at every size measured";
  return cat("latency-bound below ", human(Bytes{static_cast<std::size_t>(half_bytes())}),
             ", bandwidth-bound above");
}

std::optional<LinkFit> fit_link(std::span<const Point> points) {
  double w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;
  std::size_t used = 0;
  double first = 0;
  bool differ = false;
  for (const Point& p : points) {
    if (!(p.x > 0) || !(p.y > 0)) continue;
    if (used++ == 0) first = p.x;
    differ = differ || p.x != first;
    const double weight = 1 / (p.y * p.y);
    w += weight;
    wx += weight * p.x;
    wxx += weight * p.x * p.x;
    wy += weight * p.y;
    wxy += weight * p.x * p.y;
  }
  if (!differ) return {};
  LinkFit f;
  f.points = used;
  const double d = w * wxx - wx * wx;
  f.beta = (w * wxy - wx * wy) / d;
  f.alpha = (wy - f.beta * wx) / w;
  if (f.alpha < 0) {  // the best line through the origin
    f.alpha = 0;
    f.beta = wxy / wxx;
  } else if (f.beta < 0) {
    f.beta = 0;
    f.alpha = wy / w;
  }
  double left = 0, all = 0;  // of the logarithms: times span orders of magnitude
  double mean = 0;
  for (const Point& p : points) mean += p.x > 0 && p.y > 0 ? std::log(p.y) / static_cast<double>(used) : 0;
  for (const Point& p : points) {
    if (!(p.x > 0) || !(p.y > 0)) continue;
    left += std::pow(std::log(p.y) - std::log(f.seconds(p.x)), 2);
    all += std::pow(std::log(p.y) - mean, 2);
  }
  f.r_squared = all > 0 ? std::max(0.0, 1 - left / all) : 1;
  return f;
}

}  // namespace kiln
