#include "perf/bucket_size.h"

#include <cmath>
#include <limits>

namespace kiln {

SumCost sum_cost(const LinkModel& link, int ranks) {
  if (ranks < 2) return {std::numeric_limits<double>::infinity(), 0};
  const double steps = 2.0 * (ranks - 1);
  return {link.bandwidth * ranks / steps, link.latency * steps};
}

SumCost sum_cost(const LinkFit& fit) {
  return {fit.beta > 0 ? 1 / fit.beta : std::numeric_limits<double>::infinity(), fit.alpha};
}

double bucket_overhead(double s, double n, const SumCost& cost) { return s / (n * cost.w) + n * cost.o; }

BestBucket best_bucket(double s, const SumCost& cost) {
  BestBucket best;
  best.bytes = std::min(s, std::sqrt(s * cost.w * cost.o));  // w without end: no bytes to hide, one call
  if (std::isnan(best.bytes)) best.bytes = s;                // neither costs anything
  best.n = best.bytes > 0 ? s / best.bytes : std::numeric_limits<double>::infinity();
  best.overhead = best.bytes > 0 ? bucket_overhead(s, best.n, cost) : 0;
  return best;
}

std::optional<LinkFit> stored_link(std::span<const nlohmann::json> rows, std::string_view transport,
                                   std::string_view device, int ranks) {
  std::vector<Point> points;
  for (const nlohmann::json& r : rows) {
    if (r.value("command", "") != "bench allreduce" || r.value("gate", "") != "passed" ||
        r.value("transport", "") != transport || r.value("device", "") != device ||
        r.value("ranks", 0) != ranks || r.value("algorithm", "direct") != "direct" ||
        r.value("link", "") == "modelled" || !r.contains("p50_ms") || !r.contains("bytes"))
      continue;
    points.push_back({r["bytes"].get<double>(), 1e-3 * r["p50_ms"].get<double>()});
  }
  return fit_link(points);
}

}  // namespace kiln
