// What samples of a time can tell: an interval for the mean, the stability of the samples,
// and whether two sets differ. Apart from any clock, so that every figure can be tested.
//
// Two sets are compared by ranks (Mann-Whitney), not by means (Welch). Times are bounded below by what the
// machine can do and have a long tail above: one sample that hit a page fault moves a mean and blows up its
// variance, but takes one rank. Ranks also hold for the handful of samples a slow step gets, where the exact
// distribution is counted; the price is that three samples on each side can never be significant, which is
// then reported. Neither test knows of drift: the stability of each set does. Where the two sides alternated,
// drift is in both samples of a pair, and their ratio is free of it: pairs are compared by signed ranks
// (Wilcoxon).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kiln {

// P(T <= t) of Student's distribution, and the t for which it is p; `freedom` >= 1.
double student_cdf(double t, double freedom);
double student_quantile(double p, double freedom);

struct Interval {
  double low = 0, high = 0;
  double half_width() const { return (high - low) / 2; }
};

// In which the mean lies with 95 % confidence; of fewer than two samples the mean itself. Of any numbers: it
// may reach below 0.
Interval confidence_95(std::span<const double> samples);

// The same of times, of which none is below 0. Nothing of fewer samples than the rank test needs to tell two
// sets apart.
inline constexpr std::size_t kLeastForInterval = 4;
std::optional<Interval> interval_of_times(std::span<const double> samples);

// Standard deviation over mean; 0 of fewer than two samples.
double variation(std::span<const double> samples);

// 0 of none.
double median_of(std::span<const double> samples);

// Two-sided p of the rank test: how often two sets of the same kind would lie so far apart. 1 where a set is
// empty.
double rank_test(std::span<const double> a, std::span<const double> b);

// The same of samples taken alternately, a[i] with b[i]: how often pairs of one kind would lie so far to one
// side, by the ranks of their log ratios. 1 where no turn differs or the two are not equally many.
double turns_test(std::span<const double> a, std::span<const double> b);

struct Comparison {
  enum class Significance {
    faster,
    slower,
    same,
    too_few
  };  // too_few: not even a clean gap would have counted
  Significance significance = Significance::too_few;
  double ratio = 0;  // median of the baseline over the median of what is judged, or the median of the
                     // turns' ratios: above 1 is faster
  double p = 1;
  double noise = 0;  // where identical code, measured twice, decided `same`: how far apart that was, a share

  bool significant() const {
    return significance == Significance::faster || significance == Significance::slower;
  }
};

inline constexpr double kSignificance = 0.05;

// Is `judged` faster or slower than `baseline`?
Comparison compare(std::span<const double> baseline, std::span<const double> judged);

// The same of samples taken alternately; where they are not equally many, compare().
Comparison compare_turns(std::span<const double> baseline, std::span<const double> judged);

std::string_view name_of(Comparison::Significance v);  // faster, slower, same, too few samples

// "1.84x", or with what forbids relying on it and the rule that says so: "1.02x (same: p 0.31)", "1.03x
// (same: noise is 4 %)", "1.90x (too few samples)". Within 1 % of 1, where two decimals would hide the
// direction, a third and the significance: "0.997x (slower)".
std::string str(const Comparison& c);

}  // namespace kiln
