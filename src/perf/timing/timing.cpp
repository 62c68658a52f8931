#include "perf/timing/timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "perf/timing/statistics.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const TimedWork& work, const StopAsked& stop) {
  throw_if_stopped(stop);
  if (work.prepare) work.prepare();
  if (work.wait) work.wait();
  const Clock::time_point begin = Clock::now();
  work.call();
  if (work.wait) work.wait();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

double percentile(const std::vector<double>& sorted, double p) {
  if (sorted.empty()) return 0;
  const double at = p * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

Timing summarize(std::vector<double> samples) {
  Timing t;
  t.samples = std::move(samples);
  if (t.samples.empty()) return t;
  std::vector<double> sorted = t.samples;
  std::sort(sorted.begin(), sorted.end());
  t.min = sorted.front();
  t.p20 = percentile(sorted, 0.2);
  t.p50 = percentile(sorted, 0.5);
  t.p80 = percentile(sorted, 0.8);
  t.p95 = percentile(sorted, 0.95);
  const auto n = static_cast<double>(sorted.size());
  t.mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / n;
  double squares = 0;
  for (double s : sorted) squares += (s - t.mean) * (s - t.mean);
  t.std = sorted.size() > 1 ? std::sqrt(squares / (n - 1)) : 0;
  return t;
}

TimingOptions for_each_visit(TimingOptions o, int visits) {
  o.min_samples = (o.min_samples + visits - 1) / visits;
  o.max_samples = (o.max_samples + visits - 1) / visits;
  o.min_seconds /= visits;
  o.max_seconds /= visits;
  return o;
}

Timing merged(const Timing& a, const Timing& b) {
  std::vector<double> samples = a.samples;
  samples.insert(samples.end(), b.samples.begin(), b.samples.end());
  Timing t = summarize(std::move(samples));
  t.warmups = a.warmups;
  t.first = a.first;
  return t;
}

Timing time_work(const TimedWork& work, const TimingOptions& o) {
  const Clock::time_point begin = Clock::now();
  auto spent = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  const double first = seconds_of(work, o.stop);
  int warmups = 1;
  std::vector<double> samples;
  double sampled = 0;
  if (spent() > o.max_seconds) {  // too slow to do again
    samples.push_back(first);
    warmups = 0;
  } else {
    for (; warmups < o.warmups && spent() < o.max_seconds / 4; ++warmups) (void)seconds_of(work, o.stop);
    while (static_cast<int>(samples.size()) < o.max_samples) {
      const bool enough = static_cast<int>(samples.size()) >= o.min_samples && sampled >= o.min_seconds;
      if (enough || (!samples.empty() && spent() >= o.max_seconds)) break;
      samples.push_back(seconds_of(work, o.stop));
      sampled += samples.back();
    }
  }
  Timing t = summarize(std::move(samples));
  t.warmups = warmups;
  t.first = first;
  return t;
}

bool Timing::stable() const {
  return samples.size() > 1 && confidence_95(samples).half_width() < 0.05 * mean;
}

std::string Timing::noise() const {
  if (samples.empty()) return "no samples";
  if (samples.size() < 10) return cat("only ", samples.size(), samples.size() == 1 ? " sample" : " samples");
  const double spread = (p80 - p20) / p50;
  if (spread > 0.15) return cat("noisy: p20 to p80 spans ", std::lround(100 * spread), " % of the median");
  if (p95 > 2 * p50)
    return cat("long tail: p95 is ", std::lround(10 * p95 / p50) / 10.0, " times the median");
  // Drift: a machine that slows down as it warms up, or a cache that was still filling.
  const std::size_t half = samples.size() / 2;
  auto median_of = [&](std::size_t from, std::size_t to) {
    std::vector<double> part(samples.begin() + static_cast<std::ptrdiff_t>(from),
                             samples.begin() + static_cast<std::ptrdiff_t>(to));
    std::sort(part.begin(), part.end());
    return percentile(part, 0.5);
  };
  const double drift = median_of(half, samples.size()) / median_of(0, half) - 1;
  if (std::abs(drift) > 0.1)
    return cat("drifting: the second half is ", std::lround(100 * std::abs(drift)), " % ",
               drift > 0 ? "slower" : "faster");
  return {};
}

}  // namespace kiln
