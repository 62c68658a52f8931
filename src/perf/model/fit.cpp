#include "perf/model/fit.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "perf/timing/statistics.h"

namespace kiln {

std::optional<PowerLaw> fit_power(std::span<const Point> points) {
  if (points.size() < 2) return std::nullopt;
  const auto n = static_cast<double>(points.size());
  double mx = 0, my = 0;
  for (const Point& p : points) {
    if (!(p.x > 0) || !(p.y > 0)) return std::nullopt;
    mx += std::log(p.x) / n;
    my += std::log(p.y) / n;
  }
  double xx = 0, xy = 0, yy = 0;
  for (const Point& p : points) {
    const double dx = std::log(p.x) - mx, dy = std::log(p.y) - my;
    xx += dx * dx;
    xy += dx * dy;
    yy += dy * dy;
  }
  if (!(xx > 1e-12)) return std::nullopt;  // one x, several times
  PowerLaw law;
  law.points = points.size();
  law.exponent = xy / xx;
  law.factor = std::exp(my - law.exponent * mx);
  const double left = std::max(0.0, yy - law.exponent * xy);
  law.r_squared = yy > 0 ? 1 - left / yy : 1;
  if (points.size() > 2) law.error = student_quantile(0.975, n - 2) * std::sqrt(left / (n - 2) / xx);
  return law;
}

Crossover crossover(std::vector<Duel> duels) {
  Crossover c;
  c.points = duels.size();
  if (duels.empty()) return c;
  std::sort(duels.begin(), duels.end(), [](const Duel& a, const Duel& b) { return a.size < b.size; });
  auto won = [](const Duel& d) { return d.judged < d.baseline; };
  std::size_t first = duels.size();  // of the won ones at the end
  while (first > 0 && won(duels[first - 1])) --first;
  if (first == duels.size()) return c;
  c.first_won = duels[first].size;
  if (first == 0) {
    c.kind = Crossover::Kind::always;
    return c;
  }
  const Duel &a = duels[first - 1], &b = duels[first];
  c.kind = Crossover::Kind::from;
  c.before = a.size;
  const double lost = std::log(a.judged / a.baseline), gained = std::log(b.baseline / b.judged);
  const double at = lost + gained > 0 ? lost / (lost + gained) : 1;
  c.size = std::exp(std::log(a.size) + at * (std::log(b.size) - std::log(a.size)));
  return c;
}

std::string str(const Crossover& c, const std::string& key) {
  if (c.points == 0) return "not measured";
  if (c.kind == Crossover::Kind::always)
    return cat("pays at every size measured, from ", key, " = ", c.first_won);
  if (c.kind == Crossover::Kind::never) return "does not pay at the largest size measured";
  return cat("pays from ", key, " = ", std::llround(c.size), " (between ", c.before, " and ", c.first_won,
             ")");
}

}  // namespace kiln
