#include "studies/precision/sum_table.h"

#include <algorithm>

#include "autograd/host_floats.h"
#include "perf/timing/op_times.h"
#include "perf/timing/queued_timing.h"

namespace kiln {

float draw_held(PhiloxKey key, uint64_t at, double mean, double scale) {
  const double x = scale * (mean + static_cast<double>(philox_normal(key, at)));
  return static_cast<float>(held_in(DType::f16, held_in(DType::bf16, x)));
}

double held_in(DType t, double x) {
  return with_float(t, [&](auto zero) { return held_as<decltype(zero)>(x); });
}

double rounded_once(const std::vector<double>& right, DType dtype) {
  std::vector<double> held;
  held.reserve(right.size());
  for (double x : right) held.push_back(held_in(dtype, x));
  return relative_error(held, right);
}

void add_term_rounding(SumPrediction& f, double spacing, double factor) {
  f.variance += spacing * spacing / 12 * factor * factor;
  f.worst += spacing / 2 * std::abs(factor);
}

double time_loop_ns(const SumRequest& request, double units, const std::function<void()>& loop) {
  return 1e9 * time_work({loop}, request.timing).p50 / units;
}

OpCost time_op(RankContext& ctx, const SumRequest& request, std::string_view op, double units,
               const std::function<void()>& call) {
  OpCost cost;
  {
    OpTimes watch(ctx);
    call();
    for (const TimedOp& seen : watch.take()) {
      cost.bytes += seen.cost.bytes / units;
      if (seen.op == op && cost.ran.empty()) cost.ran = cat(op, " ", seen.variant, ", ", ctx.device().str());
    }
  }
  const Timing t = time_queued(ctx, [&](const TimedCall& timed) { timed(call, 1); }, request.timing);
  cost.ns = 1e9 * t.p50 / units;
  return cost;
}

Tensor upload_as(RankContext& ctx, const Shape& shape, DType dtype, std::span<const float> values) {
  const Tensor t = ctx.empty(shape, dtype);
  upload_floats(ctx, t, values);
  return t;
}

void fill_multiples(SumTable& table) {
  for (SumRow& row : table.rows) {
    const auto base = std::find_if(table.rows.begin(), table.rows.end(), [&](const SumRow& r) {
      // A loop of another method is compared with the plain fp32 one, which it would replace.
      const bool alike = r.method == row.method || (r.method == "plain" && row.method != "op");
      return r.dtype == DType::f32 && alike && r.ns > 0;
    });
    if (row.ns > 0 && base != table.rows.end()) row.of_fp32 = row.ns / base->ns;
  }
}

}  // namespace kiln
