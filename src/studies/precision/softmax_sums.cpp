// Softmax: the sum of exponentials under every probability of a row.
#include <algorithm>

#include "autograd/host_floats.h"
#include "autograd/tape.h"
#include "ops/softmax/softmax.h"
#include "studies/precision/sum_table.h"

namespace kiln {
namespace {

struct Scores {
  std::vector<float> x;     // [rows, width]
  std::vector<double> e;    // exp(x - max)
  std::vector<double> sum;  // [rows]
  std::vector<double> p;    // right
};

Scores draw_scores(const SumRequest& r) {
  const PhiloxKey key = philox_key(r.seed, "softmax scores");
  Scores s;
  for (int64_t i = 0; i < r.rows * r.width; ++i) s.x.push_back(draw_held(key, static_cast<uint64_t>(i)));
  for (int64_t row = 0; row < r.rows; ++row) {
    const auto first = s.x.begin() + row * r.width;
    const double most = *std::max_element(first, first + r.width);
    double sum = 0;
    for (auto x = first; x < first + r.width; ++x) {
      s.e.push_back(std::exp(static_cast<double>(*x) - most));
      sum += s.e.back();
    }
    s.sum.push_back(sum);
    for (int64_t i = 0; i < r.width; ++i)
      s.p.push_back(s.e[static_cast<std::size_t>(row * r.width + i)] / sum);
  }
  return s;
}

std::span<const double> row_of(const SumRequest& r, const std::vector<double>& all, int64_t row) {
  return std::span(all).subspan(static_cast<std::size_t>(row * r.width), static_cast<std::size_t>(r.width));
}

// Exponentials and quotient are as good as fp64 makes them: the sum alone is narrow. Its relative error is
// that of every probability.
SumRow loop_row(const SumRequest& r, const Scores& s, const SumLoop& loop) {
  const std::vector<float> terms(s.e.begin(), s.e.end());
  std::vector<double> sums(static_cast<std::size_t>(r.rows));
  SumRow row{"p", loop.dtype, std::string(name_of(loop.method)), "loop, host", static_cast<int>(r.width - 1)};
  with_sums(loop.dtype, loop.method, philox_key(r.seed, "softmax rounding"), [&](auto make) {
    const auto body = [&] {
      for (int64_t i = 0; i < r.rows; ++i) {
        auto sum = make(static_cast<uint64_t>(i * r.width));
        for (int64_t c = 0; c < r.width; ++c) sum.add(terms[static_cast<std::size_t>(i * r.width + c)]);
        sums[static_cast<std::size_t>(i)] = sum.value();
      }
    };
    row.ns = time_loop_ns(r, static_cast<double>(r.rows * r.width), body);
  });
  std::vector<double> p, held;
  PredictionNorm predicted_norm;
  for (int64_t i = 0; i < r.rows; ++i) {
    const auto at = static_cast<std::size_t>(i);
    double row_size = 0;
    for (double right : row_of(r, s.p, i)) {
      p.push_back(right * s.sum[at] / sums[at]);
      held.push_back(right * s.sum[at] / held_in(loop.dtype, s.sum[at]));
      row_size += right * right;
    }
    SumPrediction f = predict_sum(row_of(r, s.e, i), format_of(loop.dtype), loop.method);
    // An error of the sum, to first order the share it is of the sum where that is small; a sum that stalls
    // far below leaves probabilities that are too large by 1 / (1 + bias).
    const double scale = std::sqrt(row_size), at_sum = s.sum[at] + f.bias;
    f.bias = scale * (s.sum[at] / at_sum - 1);
    f.variance *= std::pow(scale * s.sum[at] / (at_sum * at_sum), 2);
    const double worst = f.worst / s.sum[at];  // of the sum, which could be lost whole
    f.worst = worst < 1 ? scale * worst / (1 - worst) : INFINITY;
    predicted_norm.add(f, scale);
  }
  row.error = relative_error(p, s.p);
  row.predicted = predicted_norm.predicted();
  row.bound = predicted_norm.bound();
  row.floor = relative_error(held, s.p);
  row.bytes = 4;  // of an exponential read; the sum stays in a register
  return row;
}

// The op reads and writes the dtype, and sums in fp32.
SumRow op_row(RankContext& ctx, const SumRequest& r, const Scores& s, DType dtype) {
  SumRow row{"p", dtype, "op", {}, static_cast<int>(r.width - 1)};
  const GradModeGuard no_grad(ctx, GradMode::off);
  const Tensor y = softmax(ctx, upload_as(ctx, {r.rows, r.width}, dtype, s.x));
  std::vector<float> p(s.p.size());
  download_floats(ctx, y, p);
  PredictionNorm predicted_norm;
  for (int64_t i = 0; i < r.rows; ++i) {
    const SumPrediction sum = predict_sum(row_of(r, s.e, i), format_of(DType::f32), SumMethod::plain);
    for (double right : row_of(r, s.p, i)) {
      SumPrediction f;
      f.bias = right * sum.bias / s.sum[static_cast<std::size_t>(i)];
      f.worst = right * sum.worst / s.sum[static_cast<std::size_t>(i)];
      add_term_rounding(f, format_of(dtype).spacing(right), 1);
      predicted_norm.add(f, right);
    }
  }
  row.error = relative_error(p, s.p);
  row.predicted = predicted_norm.predicted();
  row.bound = predicted_norm.bound();
  row.floor = rounded_once(s.p, dtype);
  const int64_t rows = std::max<int64_t>(1, r.timed() / r.width);
  const Tensor x = ctx.zeros({rows, r.width}, dtype);
  const OpCost cost =
      time_op(ctx, r, SoftmaxOp::kName, static_cast<double>(rows * r.width), [&] { (void)softmax(ctx, x); });
  row.ran = cost.ran;
  row.ns = cost.ns;
  row.bytes = cost.bytes;
  return row;
}

}  // namespace

SumTable softmax_sums(const SumRequest& r) {
  SumTable table{
      "softmax", cat("softmax over ", r.width, " scores: error of the probabilities"), "score", {}};
  const Scores s = draw_scores(r);
  for (const SumLoop& loop : kSumLoops) table.rows.push_back(loop_row(r, s, loop));
  RankOptions options;
  options.device = r.device;
  RankContext ctx(options);
  for (DType dtype : kSumDTypes) table.rows.push_back(op_row(ctx, r, s, dtype));
  fill_multiples(table);
  return table;
}

}  // namespace kiln
