#include "perf/timing/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "base/error.h"
#include "base/plain_number.h"
#include "perf/timing/timing.h"

namespace kiln {
namespace {

// The regularised incomplete beta function by its continued fraction, which converges fast below the mean.
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  auto away_from_zero = [](double v) { return std::abs(v) < kTiny ? kTiny : v; };
  double c = 1, d = 1 / away_from_zero(1 - (a + b) * x / (a + 1)), value = d;
  for (int m = 1; m < 500; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away_from_zero(1 + even * d);
    c = away_from_zero(1 + even / c);
    value *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away_from_zero(1 + odd * d);
    c = away_from_zero(1 + odd / c);
    value *= d * c;
    if (std::abs(d * c - 1) < 1e-15) break;
  }
  return value;
}

double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double mean_of(std::span<const double> samples) {
  return std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
}

double std_of(std::span<const double> samples) {
  if (samples.size() < 2) return 0;
  const double mean = mean_of(samples);
  double squares = 0;
  for (double s : samples) squares += (s - mean) * (s - mean);
  return std::sqrt(squares / static_cast<double>(samples.size() - 1));
}

// How many of all orders of n and m samples have each value of U, as shares: the recurrence that removes the
// largest sample, which is either one of the n (and beats all m) or one of the m.
std::vector<double> exact_shares(std::size_t n, std::size_t m) {
  std::vector<std::vector<double>> fewer(m + 1), now(m + 1);  // for one n, by m
  for (auto& f : fewer) f = {1};                              // no samples of the first kind: U is 0
  for (std::size_t i = 1; i <= n; ++i) {
    now[0] = {1};
    for (std::size_t j = 1; j <= m; ++j) {
      now[j].assign(i * j + 1, 0);
      const double share = static_cast<double>(i) / static_cast<double>(i + j);
      for (std::size_t u = 0; u < fewer[j].size(); ++u) now[j][u + j] += share * fewer[j][u];
      for (std::size_t u = 0; u < now[j - 1].size(); ++u) now[j][u] += (1 - share) * now[j - 1][u];
    }
    std::swap(fewer, now);
  }
  return fewer[m];
}

struct Ranked {
  double u = 0;     // pairs in which the first set's sample is the larger; ties count half
  double ties = 0;  // sum of t^3 - t over groups of equal samples
};

Ranked rank(std::span<const double> a, std::span<const double> b) {
  std::vector<std::pair<double, bool>> all;  // and whether it is of the first set
  all.reserve(a.size() + b.size());
  for (double x : a) all.emplace_back(x, true);
  for (double x : b) all.emplace_back(x, false);
  std::sort(all.begin(), all.end());
  Ranked r;
  double ranks = 0;
  for (std::size_t from = 0; from < all.size();) {
    std::size_t to = from;
    while (to < all.size() && all[to].first == all[from].first) ++to;
    const double mid = static_cast<double>(from + to + 1) / 2;  // of ranks from + 1 to `to`
    const auto t = static_cast<double>(to - from);
    r.ties += t * t * t - t;
    for (; from < to; ++from) ranks += all[from].second ? mid : 0;
  }
  const auto n = static_cast<double>(a.size());
  r.u = ranks - n * (n + 1) / 2;
  return r;
}

// Twice the ranks of sizes that are not 0, so that the ranks equal ones share stay whole.
std::vector<std::size_t> doubled_ranks(std::vector<double> sizes) {
  std::sort(sizes.begin(), sizes.end());
  std::vector<std::size_t> ranks;
  for (std::size_t from = 0; from < sizes.size();) {
    std::size_t to = from;
    while (to < sizes.size() && sizes[to] == sizes[from]) ++to;
    ranks.resize(to, from + to + 1);
    from = to;
  }
  return ranks;
}

// P(the sum of ranks on one side is at most `least`), each turn falling on either side alike: all subsets,
// counted by their sums.
double share_of_sums(const std::vector<std::size_t>& ranks, std::size_t least) {
  std::vector<double> shares(least + 1, 0);
  shares[0] = 1;
  for (const std::size_t r : ranks) {
    for (std::size_t sum = least + 1; sum-- > 0;)
      shares[sum] = (shares[sum] + (sum >= r ? shares[sum - r] : 0)) / 2;
  }
  return std::accumulate(shares.begin(), shares.end(), 0.0);
}

// The smallest p that so many samples can give: with no overlap at all.
double least_p(std::size_t n, std::size_t m) {
  double orders = 1;
  for (std::size_t i = 1; i <= n; ++i) orders *= static_cast<double>(m + i) / static_cast<double>(i);
  return 2 / orders;
}

}  // namespace

double student_cdf(double t, double freedom) {
  const double tail = incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2;
  return t > 0 ? 1 - tail : tail;
}

double student_quantile(double p, double freedom) {
  double low = -1, high = 1;
  while (student_cdf(low, freedom) > p) low *= 2;
  while (student_cdf(high, freedom) < p) high *= 2;
  for (int i = 0; i < 200 && high - low > 1e-13 * std::max(1.0, std::abs(high)); ++i) {
    const double middle = (low + high) / 2;
    (student_cdf(middle, freedom) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

Interval confidence_95(std::span<const double> samples) {
  if (samples.empty()) return {};
  const double mean = mean_of(samples);
  if (samples.size() < 2) return {mean, mean};
  const auto n = static_cast<double>(samples.size());
  const double half = student_quantile(0.975, n - 1) * std_of(samples) / std::sqrt(n);
  return {mean - half, mean + half};
}

std::optional<Interval> interval_of_times(std::span<const double> samples) {
  if (samples.size() < kLeastForInterval) return std::nullopt;
  Interval mean = confidence_95(samples);
  mean.low = std::max(0.0, mean.low);
  return mean;
}

double variation(std::span<const double> samples) {
  if (samples.size() < 2) return 0;
  const double mean = mean_of(samples);
  return mean > 0 ? std_of(samples) / mean : 0;
}

double median_of(std::span<const double> samples) {
  if (samples.empty()) return 0;
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return percentile(sorted, 0.5);
}

double rank_test(std::span<const double> a, std::span<const double> b) {
  if (a.empty() || b.empty()) return 1;
  // With so many samples on each side the normal curve is close enough; with few on one, it never is. (With
  // ties it is all there is, and errs towards no difference.)
  constexpr std::size_t kMany = 30, kFew = 8, kMostProducts = 10'000;
  const Ranked r = rank(a, b);
  const auto n = static_cast<double>(a.size()), m = static_cast<double>(b.size());
  const std::size_t fewer = std::min(a.size(), b.size()), more = std::max(a.size(), b.size());
  if (r.ties == 0 && (more <= kMany || (fewer <= kFew && fewer * more <= kMostProducts))) {
    const std::vector<double> shares = exact_shares(a.size(), b.size());
    const auto less = static_cast<std::size_t>(std::min(r.u, n * m - r.u));
    double tail = 0;
    for (std::size_t u = 0; u <= less; ++u) tail += shares[u];
    return std::min(1.0, 2 * tail);
  }
  const double all = n + m;
  const double variance = n * m / 12 * (all + 1 - r.ties / (all * (all - 1)));
  if (!(variance > 0)) return 1;  // every sample the same
  const double z = std::max(0.0, std::abs(r.u - n * m / 2) - 0.5) / std::sqrt(variance);
  return std::erfc(z / std::sqrt(2.0));
}

double turns_test(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) return 1;
  constexpr std::size_t kMany = 200;  // beyond, the normal curve is as good and counting is slow
  std::vector<double> apart, sizes;   // a turn that is even says nothing of a direction
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::log(a[i] / b[i]);
    if (d == 0 || !std::isfinite(d)) continue;
    apart.push_back(d);
    sizes.push_back(std::abs(d));
  }
  if (apart.empty()) return 1;
  const std::vector<std::size_t> ranks = doubled_ranks(sizes);
  std::sort(apart.begin(), apart.end(), [](double x, double y) { return std::abs(x) < std::abs(y); });
  std::size_t above = 0, all = 0;
  double squares = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    above += apart[i] > 0 ? ranks[i] : 0;
    all += ranks[i];
    squares += static_cast<double>(ranks[i] * ranks[i]);
  }
  const std::size_t least = std::min(above, all - above);
  if (ranks.size() <= kMany) return std::min(1.0, 2 * share_of_sums(ranks, least));
  const double away = static_cast<double>(all) / 2 - static_cast<double>(least);
  return std::erfc(std::max(0.0, away - 1) / std::sqrt(squares / 4) / std::sqrt(2.0));
}

Comparison compare(std::span<const double> baseline, std::span<const double> judged) {
  using V = Comparison::Significance;
  Comparison c;
  if (baseline.empty() || judged.empty()) return c;
  const double median = median_of(judged);
  c.ratio = median > 0 ? median_of(baseline) / median : 0;
  c.p = rank_test(baseline, judged);
  if (least_p(baseline.size(), judged.size()) >= kSignificance) return c;
  c.significance = c.p >= kSignificance ? V::same : c.ratio >= 1 ? V::faster : V::slower;
  return c;
}

Comparison compare_turns(std::span<const double> baseline, std::span<const double> judged) {
  using V = Comparison::Significance;
  if (baseline.size() != judged.size()) return compare(baseline, judged);
  Comparison c;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < judged.size(); ++i) {
    if (judged[i] > 0) ratios.push_back(baseline[i] / judged[i]);
  }
  if (ratios.empty()) return c;
  c.ratio = median_of(ratios);
  c.p = turns_test(baseline, judged);
  if (2 * std::pow(0.5, static_cast<double>(judged.size())) >= kSignificance) return c;
  c.significance = c.p >= kSignificance ? V::same : c.ratio >= 1 ? V::faster : V::slower;
  return c;
}

std::string_view name_of(Comparison::Significance v) {
  constexpr std::array<std::string_view, 4> kNames = {"faster", "slower", "same", "too few samples"};
  return kNames[static_cast<std::size_t>(v)];
}

namespace {

template <class... Values>
std::string printed(const char* form, Values... values) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), form, values...);
  return text.data();
}

// Why two are the same: the test, or that identical code differs as much.
std::string rule_of(const Comparison& c) {
  if (c.significance != Comparison::Significance::same) return {};
  return c.noise > 0 ? cat(": noise is ", plain(100 * c.noise, 2), " %") : cat(": p ", plain(c.p, 2));
}

}  // namespace

std::string str(const Comparison& c) {
  const bool near = std::abs(c.ratio - 1) < 0.01;
  const std::string text = printed(near ? "%.3fx" : "%.2fx", c.ratio);
  return c.significant() && !near ? text : cat(text, " (", name_of(c.significance), rule_of(c), ")");
}

}  // namespace kiln
