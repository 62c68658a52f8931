#include "studies/precision/layer_norm_study.h"

#include <cmath>

#include "base/rng.h"
#include "studies/precision/float_format.h"

namespace kiln {
namespace {

constexpr double kScales[] = {1e-3, 1e-2, 1e-1, 1, 1e1, 1e2, 1e3, 1e4};
constexpr float kCut = 3;  // of z, so that every input fits into fp16

double round_to(DType t, double x) {
  return with_float(t, [&](auto zero) { return held_as<decltype(zero)>(x); });
}

// Rounds the result of each operation to a dtype and counts what that does to it.
class Rounding {
 public:
  Rounding(DType dtype, LayerNormCell& cell) : dtype_(dtype), format_(format_of(dtype)), cell_(&cell) {}

  double operator()(double x) const {
    const double held = round_to(dtype_, x);
    ++cell_->roundings;
    if (std::isfinite(x) && !std::isfinite(held)) ++cell_->overflows;
    if (x != 0 && held == 0) ++cell_->vanished;
    if (held != 0 && std::abs(held) < format_.smallest_normal()) ++cell_->subnormal;
    return held;
  }

 private:
  DType dtype_;
  FloatFormat format_;
  LayerNormCell* cell_;
};

struct Rows {
  int64_t width;
  double eps;
  std::vector<double> x, weight, bias;  // numbers of the narrow dtype: what it cannot hold is no part's fault
};

Rows draw_rows(const LayerNormRequest& r, DType dtype, double scale) {
  Rows rows{r.width, r.eps, {}, {}, {}};
  const PhiloxKey x = philox_key(r.seed, "layer norm x"), w = philox_key(r.seed, "layer norm w");
  for (int64_t i = 0; i < r.rows * r.width; ++i)
    rows.x.push_back(
        round_to(dtype, scale * (1 + philox_truncated_normal(x, static_cast<uint64_t>(i), kCut))));
  for (int64_t i = 0; i < r.width; ++i) {
    rows.weight.push_back(round_to(dtype, 1 + 0.1 * philox_normal(w, static_cast<uint64_t>(2 * i))));
    rows.bias.push_back(round_to(dtype, 0.1 * philox_normal(w, static_cast<uint64_t>(2 * i + 1))));
  }
  return rows;
}

// `mean_sum` and `variance_sum` round the running sums, and the squares on their way into the second.
struct Roundings {
  Rounding mean, variance, rsqrt, affine, mean_sum, variance_sum;
};

void norm_row(const Rows& rows, const double* x, const Roundings& to, double* y) {
  const double n = static_cast<double>(rows.width);
  double sum = 0;
  for (int64_t i = 0; i < rows.width; ++i) sum = to.mean_sum(sum + x[i]);
  const double mean = to.mean(sum / to.mean(n));

  const double mean_there = to.variance(mean);
  double squares = 0;
  for (int64_t i = 0; i < rows.width; ++i) {
    const double d = to.variance(x[i] - mean_there);
    squares = to.variance_sum(squares + to.variance_sum(d * d));
  }
  const double variance = to.variance(squares / to.variance(n));

  const double root = to.rsqrt(std::sqrt(to.rsqrt(to.rsqrt(variance) + to.rsqrt(rows.eps))));
  const double rstd = to.affine(to.rsqrt(1 / root));

  const double mean_here = to.affine(mean);
  for (int64_t i = 0; i < rows.width; ++i) {
    const double normed = to.affine(to.affine(x[i] - mean_here) * rstd);
    y[i] = to.affine(to.affine(normed * rows.weight[i]) + rows.bias[i]);
  }
}

std::vector<double> norm(const Rows& rows, const Roundings& to) {
  std::vector<double> y(rows.x.size());
  for (std::size_t r = 0; r < y.size(); r += static_cast<std::size_t>(rows.width))
    norm_row(rows, rows.x.data() + r, to, y.data() + r);
  return y;
}

double relative_error(const std::vector<double>& y, const std::vector<double>& right) {
  double apart = 0, size = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    apart += (y[i] - right[i]) * (y[i] - right[i]);
    size += right[i] * right[i];
  }
  return std::isfinite(apart) ? std::sqrt(apart / size) : std::numeric_limits<double>::infinity();
}

LayerNormCell study_cell(const Rows& rows, DType dtype, NarrowPart part, const std::vector<double>& right) {
  LayerNormCell cell, unused;
  const Rounding narrow(dtype, cell), exact(DType::f64, unused), fp32(DType::f32, unused);
  const bool all = part == NarrowPart::all || part == NarrowPart::all_but_sums;
  const auto of = [&](NarrowPart p) { return all || part == p ? narrow : exact; };
  const auto sum_of = [&](NarrowPart p) { return part == NarrowPart::all_but_sums ? fp32 : of(p); };
  const std::vector<double> y =
      norm(rows, {of(NarrowPart::mean), of(NarrowPart::variance), of(NarrowPart::rsqrt),
                  of(NarrowPart::affine), sum_of(NarrowPart::mean), sum_of(NarrowPart::variance)});
  cell.error = relative_error(y, right);
  return cell;
}

LayerNormRow study_row(const LayerNormRequest& request, DType dtype, double scale) {
  const Rows rows = draw_rows(request, dtype, scale);
  LayerNormCell unused;
  const Rounding exact(DType::f64, unused), narrow(dtype, unused);
  const std::vector<double> right = norm(rows, {exact, exact, exact, exact, exact, exact});
  std::vector<double> rounded = right;
  for (double& y : rounded) y = narrow(y);
  LayerNormRow row{.dtype = dtype, .scale = scale, .floor = relative_error(rounded, right)};
  for (int p = 0; p < kNarrowParts; ++p)
    row.cells[static_cast<std::size_t>(p)] = study_cell(rows, dtype, static_cast<NarrowPart>(p), right);
  return row;
}

}  // namespace

LayerNormReport layer_norm_study(const LayerNormRequest& request) {
  LayerNormReport report{request, {}};
  for (DType dtype : {DType::f16, DType::bf16})
    for (double scale : kScales) report.rows.push_back(study_row(request, dtype, scale));
  return report;
}

// Inputs have mean and deviation `scale`: the sum ends at width x scale, that of squares at width x scale^2.
double predicted_overflow(DType dtype, NarrowPart part, int64_t width) {
  const double largest = format_of(dtype).largest, n = static_cast<double>(width);
  switch (part) {
    case NarrowPart::mean:
      return largest / n;
    case NarrowPart::variance:
    case NarrowPart::all:
      return std::sqrt(largest / n);
    case NarrowPart::rsqrt:
    case NarrowPart::all_but_sums:
      return std::sqrt(largest);  // the variance itself
    case NarrowPart::affine:
      return largest / (1 + static_cast<double>(kCut));  // the input itself
  }
  return std::numeric_limits<double>::infinity();
}

std::string_view name_of(NarrowPart p) {
  constexpr std::string_view kNames[] = {"mean", "variance", "rsqrt", "affine", "all", "all_but_sums"};
  return kNames[static_cast<int>(p)];
}

}  // namespace kiln
