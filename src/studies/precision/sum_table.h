// A table of sums that training makes, each in several dtypes: how far off, how far predicted, and at what
// cost.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "autograd/rank_context.h"
#include "perf/timing/timing.h"
#include "studies/precision/sum_prediction.h"

namespace kiln {

// Sizes of the sums whose error is taken, and of the calls whose time is.
struct SumRequest {
  Device device = Device::cpu();
  uint64_t seed = 0;
  int64_t tokens = 1024, vocab = 40, hidden = 24;  // linear-cross-entropy: dW is a sum over tokens
  int ranks = 16;                                  // all-reduce: at most kMaxThreadRanks
  int64_t elements = 4096;                         // of a rank
  int steps = 1000;                                // Adam
  int64_t params = 192;
  int64_t width = 4096, rows = 16;  // softmax: a sum over the width
  int64_t timed_elements = 0;       // of the ops when timed; 0: as many as keep the device busy
  TimingOptions timing = {
      .warmups = 1, .min_samples = 5, .max_samples = 100, .min_seconds = 0.01, .max_seconds = 0.2};

  int64_t timed() const {
    if (timed_elements > 0) return timed_elements;
    return int64_t{1} << (device.type == DeviceType::cuda ? 24 : 20);
  }
};

struct SumRow {
  std::string quantity;  // what is off: "dW", "m", ...
  DType dtype;           // of the running sum in a loop; of what an op reads and writes
  std::string method;    // of a loop: plain, kahan, stochastic, ring, tree; "op" for an op
  std::string ran;       // "loop, host" or op, variant and device
  int roundings = 0;     // of the running sum, in its own dtype, on the way to one element of the result
  double error = 0;      // all four by norm, relative to fp64
  double predicted = 0;  // bias and scatter of the roundings
  double bound = 0;      // the worst they could add up to
  double floor = 0;      // the right result, rounded once to the dtype that holds it
  double ns = 0;         // of one unit of the table; 0: not timed by itself
  double bytes = 0;      // that must move for it
  double of_fp32 =
      0;  // ns, as a multiple of the fp32 loop's (plain, or of the same order), or of the fp32 op's
};

struct SumTable {
  std::string name, title, unit;  // unit: what ns and bytes are of
  std::vector<SumRow> rows;
};

SumTable linear_ce_sums(const SumRequest& request);
SumTable all_reduce_sums(const SumRequest& request);
SumTable adam_state_sums(const SumRequest& request);
SumTable softmax_sums(const SumRequest& request);

// --- what they share

inline constexpr DType kSumDTypes[] = {DType::f32, DType::bf16, DType::f16};

// A normal number that bf16 and fp16 both hold exactly: an error is then the sum's, not its inputs'.
float draw_held(PhiloxKey key, uint64_t at, double mean = 0, double scale = 1);

double held_in(DType t, double x);

// |a - right| / |right|, by norm. Infinite where `a` is not finite.
template <class A>
double relative_error(const std::vector<A>& a, const std::vector<double>& right) {
  double apart = 0, size = 0;
  for (std::size_t i = 0; i < right.size(); ++i) {
    const double d = static_cast<double>(a[i]) - right[i];
    apart += d * d;
    size += right[i] * right[i];
  }
  const double e = std::sqrt(apart / size);
  return std::isnan(e) ? INFINITY : e;
}

// Predictions for all elements of a result, as one norm.
class PredictionNorm {
 public:
  void add(const SumPrediction& f, double right) {
    square_ += f.bias * f.bias + f.variance;
    worst_ += f.worst * f.worst;
    size_ += right * right;
  }
  double predicted() const { return std::sqrt(square_ / size_); }
  double bound() const { return std::sqrt(worst_ / size_); }

 private:
  double square_ = 0, worst_ = 0, size_ = 0;
};

double rounded_once(const std::vector<double>& right, DType dtype);  // its relative error

// Rounding each term before it is added: as of a sum of terms whose own spacing this is.
void add_term_rounding(SumPrediction& f, double spacing, double factor);

double time_loop_ns(const SumRequest& request, double units, const std::function<void()>& loop);

// An op by itself: its row of the table, and the time and bytes of all ops that `call` runs.
struct OpCost {
  std::string ran;
  double ns = 0, bytes = 0;
};
OpCost time_op(RankContext& ctx, const SumRequest& request, std::string_view op, double units,
               const std::function<void()>& call);

Tensor upload_as(RankContext& ctx, const Shape& shape, DType dtype, std::span<const float> values);

void fill_multiples(SumTable& table);

// Calls f with a maker of sums: f([](uint64_t at) { return PlainSum<bf16>(); }).
template <class F>
void with_sums(DType dtype, SumMethod method, PhiloxKey key, F&& f) {
  with_float(dtype, [&](auto zero) {
    using A = decltype(zero);
    if (method == SumMethod::kahan) {
      f([](uint64_t) { return KahanSum<A>(); });
    } else if (method == SumMethod::stochastic) {
      f([key](uint64_t at) { return StochasticSum<A>(key, at); });
    } else {
      f([](uint64_t) { return PlainSum<A>(); });
    }
  });
}

// The loops of the tables: every dtype plainly, by Kahan, and the narrow ones with stochastic rounding.
struct SumLoop {
  DType dtype;
  SumMethod method;
};
inline constexpr SumLoop kSumLoops[] = {
    {DType::f32, SumMethod::plain},       {DType::bf16, SumMethod::plain},    {DType::f16, SumMethod::plain},
    {DType::f32, SumMethod::kahan},       {DType::bf16, SumMethod::kahan},    {DType::f16, SumMethod::kahan},
    {DType::bf16, SumMethod::stochastic}, {DType::f16, SumMethod::stochastic}};

}  // namespace kiln
