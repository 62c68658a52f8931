#include "perf/comm/bucket_size.h"

#include <cmath>
#include <limits>

#include "base/json.h"
#include "rows/row_status.h"

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

std::optional<LinkFit> stored_link(std::span<const Json> rows, std::string_view transport,
                                   std::string_view device, int ranks) {
  // What has other types than such rows have is none of them.
  const auto is = [](const Json& r, const char* key, std::string_view word) {
    const auto found = r.find(key);
    return found != nullptr && found->is_string() && found->text() == word;
  };
  const auto number = [](const Json& r, const char* key) {
    const auto found = r.find(key);
    return found != nullptr && found->is_number() ? found->get<double>() : -1;
  };
  std::vector<Point> points;
  for (const Json& r : rows) {
    if (!is(r, "command", "bench allreduce") || !counts(r) || !is(r, "transport", transport) ||
        !is(r, "device", device) || number(r, "ranks") != ranks ||
        (r.contains("algorithm") && !is(r, "algorithm", "direct")) || is(r, "link", "modelled") ||
        number(r, "p50_ms") < 0 || number(r, "bytes") < 0)
      continue;
    points.push_back({number(r, "bytes"), 1e-3 * number(r, "p50_ms")});
  }
  return fit_link(points);
}

}  // namespace kiln
