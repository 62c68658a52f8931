#include "studies/precision/running_sum_study.h"

#include <cmath>

namespace kiln {
namespace {

double round_to(DType t, double x) {
  return with_float(t, [&](auto zero) { return held_as<decltype(zero)>(x); });
}

template <class Sum>
double sum_of(Sum sum, float x, int64_t count) {
  for (int64_t i = 0; i < count && std::isfinite(sum.value()); ++i) sum.add(x);
  return sum.value();
}

// The variance of one addition is f (1 - f) spacing^2 where f is the part of a spacing that is left over. The
// increment's own f stands for the sum's: both leave the same remainder, since the sum is a multiple.
double predict_spread(DType accumulator, double increment, int64_t count) {
  const FloatFormat format = format_of(accumulator);
  double variance = 0;
  for (int64_t i = 1; i < count; ++i) {
    const double spacing = format.spacing(static_cast<double>(i + 1) * increment);
    const double f = increment / spacing - std::floor(increment / spacing);
    variance += f * (1 - f) * spacing * spacing;
  }
  return std::sqrt(variance);
}

SumLimit limit_of(const RunningSumRow& row, double whole) {
  if (!std::isfinite(row.sum)) return SumLimit::range;
  if (row.stalls_at && row.method != SumMethod::stochastic) return SumLimit::stalls;
  if (row.sum == whole) return SumLimit::value;
  return row.method == SumMethod::stochastic ? SumLimit::chance : SumLimit::spacing;
}

void finish(RunningSumRow& row, const RunningSumReport& report) {
  const double whole = static_cast<double>(report.request.count) * row.increment;
  row.error = row.sum - report.exact;
  row.floor = std::abs(whole - report.exact);
  row.spacing = std::isfinite(row.sum) ? format_of(row.accumulator).spacing(row.sum) : 0;
  row.limit = limit_of(row, whole);
}

template <class A, class X>
RunningSumRow plain_row(const RunningSumReport& report, SumMethod method) {
  const RunningSumRequest& r = report.request;
  const X x(static_cast<float>(r.value));
  RunningSumRow row{.added = dtype_of<X>(), .accumulator = dtype_of<A>(), .method = method};
  row.increment = static_cast<double>(static_cast<float>(x));
  const auto summand = static_cast<float>(x);
  row.sum = sum_of(PlainSum<A>(), method == SumMethod::converted ? static_cast<float>(A(summand)) : summand,
                   r.count);
  PlainSumPrediction predicted = predict_plain_sum(row.accumulator, row.increment, r.count);
  row.predicted = predicted.sum;
  row.stalls_at = predicted.stalls_at;
  row.binades = std::move(predicted.binades);
  finish(row, report);
  return row;
}

// Kahan's sum is within 2 u + O(n u^2) of the exact one, u the unit roundoff; the second term is taken
// once.
template <class A>
RunningSumRow kahan_row(const RunningSumReport& report) {
  const RunningSumRequest& r = report.request;
  const A x(static_cast<float>(r.value));
  RunningSumRow row{.added = dtype_of<A>(), .accumulator = dtype_of<A>(), .method = SumMethod::kahan};
  row.increment = static_cast<double>(static_cast<float>(x));
  row.sum = sum_of(KahanSum<A>(), static_cast<float>(x), r.count);
  const double n = static_cast<double>(r.count), u = format_of(row.accumulator).unit_roundoff();
  row.predicted = round_to(row.accumulator, n * row.increment);
  row.bound = (2 * u + n * u * u) * n * row.increment;
  finish(row, report);
  return row;
}

template <class A>
RunningSumRow stochastic_row(const RunningSumReport& report) {
  const RunningSumRequest& r = report.request;
  const A x(static_cast<float>(r.value));
  RunningSumRow row{.added = dtype_of<A>(), .accumulator = dtype_of<A>(), .method = SumMethod::stochastic};
  row.increment = static_cast<double>(static_cast<float>(x));
  row.runs = r.runs;
  std::vector<double> sums;
  for (int run = 0; run < r.runs; ++run) {
    const PhiloxKey key = philox_key(r.seed, cat("stochastic rounding ", name_of(row.accumulator), " ", run));
    sums.push_back(sum_of(StochasticSum<A>(key), static_cast<float>(x), r.count));
    row.sum += sums.back() / r.runs;
  }
  row.predicted = static_cast<double>(r.count) * row.increment;
  if (std::isfinite(row.sum)) {
    double squares = 0;
    for (double s : sums) squares += (s - row.sum) * (s - row.sum);
    row.spread = std::sqrt(squares / (r.runs - 1));
    row.predicted_spread = predict_spread(row.accumulator, row.increment, r.count);
    row.bound = 4 * row.predicted_spread / std::sqrt(static_cast<double>(r.runs));
  }
  finish(row, report);
  return row;
}

}  // namespace

// Within a binade the sum is a multiple of the spacing, so every addition rounds alike: whole runs of them
// are one product. The addition that enters a binade, and the first in it (which may settle a tie to even),
// are made singly.
PlainSumPrediction predict_plain_sum(DType accumulator, double increment, int64_t count) {
  const FloatFormat format = format_of(accumulator);
  PlainSumPrediction p{0, std::nullopt, {}};
  int64_t left = count;
  while (left > 0 && std::isfinite(p.sum)) {
    const double before = p.sum;
    p.sum = round_to(accumulator, p.sum + increment);
    --left;
    if (p.sum == before) {
      p.stalls_at = p.sum;
      const double from = std::exp2(std::ilogb(p.sum));
      if (p.binades.empty() || p.binades.back().from != from)
        p.binades.push_back({from, format.spacing(p.sum), 0, 0});
      p.binades.back().adds = 0;
      p.binades.back().count += left + 1;
      break;
    }
    if (!std::isfinite(p.sum)) break;
    const double from = std::max(std::exp2(std::ilogb(p.sum)), format.smallest_normal());
    const double second = round_to(accumulator, p.sum + increment);
    const double step = second - p.sum;  // a tie's first step may differ from the later ones
    const double third = round_to(accumulator, second + increment) - second;
    if (p.binades.empty() || p.binades.back().from != from)
      p.binades.push_back({from, format.spacing(p.sum), step, 0});
    ++p.binades.back().count;
    const double room = 2 * from - increment - p.sum;
    if (step <= 0 || step != third || room < 0) continue;
    const int64_t more = std::min(left, static_cast<int64_t>(std::floor(room / step)) + 1);
    p.sum += static_cast<double>(more) * step;
    left -= more;
    p.binades.back().count += more;
  }
  return p;
}

RunningSumReport running_sum_study(const RunningSumRequest& request) {
  RunningSumReport report{request, static_cast<double>(request.count) * request.value, {}};
  report.rows = {
      plain_row<float, float>(report, SumMethod::plain),
      plain_row<fp16, fp16>(report, SumMethod::plain),
      plain_row<float, fp16>(report, SumMethod::plain),
      plain_row<float, fp16>(report, SumMethod::converted),
      plain_row<bf16, bf16>(report, SumMethod::plain),
      plain_row<float, bf16>(report, SumMethod::plain),
      kahan_row<fp16>(report),
      kahan_row<bf16>(report),
      stochastic_row<fp16>(report),
      stochastic_row<bf16>(report),
  };
  return report;
}

std::string_view name_of(SumMethod m) {
  constexpr std::string_view kNames[] = {"plain", "converted", "kahan", "stochastic"};
  return kNames[static_cast<int>(m)];
}

std::string_view name_of(SumLimit l) {
  constexpr std::string_view kNames[] = {"value", "spacing", "stalls", "chance", "range"};
  return kNames[static_cast<int>(l)];
}

}  // namespace kiln
