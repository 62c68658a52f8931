// Adam's state: m and v are moving averages that are rounded at every step, and the weights move by their
// quotient.
#include <algorithm>

#include "autograd/host_floats.h"
#include "ops/adamw/adamw.h"
#include "studies/precision/sum_table.h"

namespace kiln {
namespace {

// Near the usual 0.9 and 0.999, and with 1 - beta exact in fp32: an error is then the state's. (fp32 holds
// 1 - 0.999 to five digits only.)
constexpr double kBeta1 = 1 - 25.0 / 256, kBeta2 = 1 - 1.0 / 1024;
constexpr double kEps = 1e-8, kLr = 1e-3;
constexpr double kGradScale = 1e-3;
constexpr int kSample = 64;  // gradients sampled per parameter for a prediction

struct Course {
  std::vector<float> g;             // [steps, params]
  std::vector<float> start;         // weights
  std::vector<double> m, v, moved;  // right, after the last step; what the weights moved by
};

std::size_t at(const SumRequest& r, int step, int64_t i) {
  return static_cast<std::size_t>(step) * static_cast<std::size_t>(r.params) + static_cast<std::size_t>(i);
}

struct Exact {
  double g = 0, m = 0, v = 0, correction1 = 1, correction2 = 1;  // of one parameter after a step
  double update() const { return kLr * (m / correction1) / (std::sqrt(v / correction2) + kEps); }
};

// each(step, exact) after every step of parameter i
template <class Each>
void follow(const SumRequest& r, const Course& c, int64_t i, Each each) {
  Exact x;
  double power1 = 1, power2 = 1;
  for (int step = 0; step < r.steps; ++step) {
    x.g = static_cast<double>(c.g[at(r, step, i)]);
    x.m = kBeta1 * x.m + (1 - kBeta1) * x.g;
    x.v = kBeta2 * x.v + (1 - kBeta2) * x.g * x.g;
    x.correction1 = 1 - (power1 *= kBeta1);
    x.correction2 = 1 - (power2 *= kBeta2);
    each(step, x);
  }
}

Course draw_course(const SumRequest& r) {
  const PhiloxKey key = philox_key(r.seed, "adam gradients"), mean_key = philox_key(r.seed, "adam means"),
                  start_key = philox_key(r.seed, "adam weights");
  Course c;
  for (int step = 0; step < r.steps; ++step)
    for (int64_t i = 0; i < r.params; ++i)
      c.g.push_back(draw_held(key, at(r, step, i),
                              0.5 * static_cast<double>(philox_normal(mean_key, static_cast<uint64_t>(i))),
                              kGradScale));
  for (int64_t i = 0; i < r.params; ++i) {
    c.start.push_back(draw_held(start_key, static_cast<uint64_t>(i), 0, 0.02));
    Exact last;
    double moved = 0;
    follow(r, c, i, [&](int, const Exact& x) {
      last = x;
      moved -= x.update();
    });
    c.m.push_back(last.m);
    c.v.push_back(last.v);
    c.moved.push_back(moved);
  }
  return c;
}

StepScalars scalars_after(int step) {
  StepScalars s;
  s.lr = kLr;
  s.step = step + 1;
  s.rate1_power = std::pow(kBeta1, step + 1);
  s.rate2_power = std::pow(kBeta2, step + 1);
  return s;
}

// One number of the state, as each method keeps it.
template <class A>
struct PlainState {
  A x{0.0f};
  float value() const { return static_cast<float>(x); }
  void set(float next, uint32_t) { x = A(next); }
};
template <class A>
struct StochasticState {
  A x{0.0f};
  float value() const { return static_cast<float>(x); }
  void set(float next, uint32_t draw) { x = round_stochastic<A>(static_cast<double>(next), draw); }
};
template <class A>
struct KahanState {
  KahanSum<A> sum;
  float value() const { return static_cast<float>(sum.value() - sum.lost()); }
  void set(float next, uint32_t) { sum.add(next - value()); }
};

struct Ended {
  std::vector<float> m, v, w;
};

template <class State, bool kDraws>
Ended run_loop(const SumRequest& r, const Course& c) {
  const AdamWProblem p{r.params, DType::f32, DType::f32, false, kBeta1, kBeta2, kEps, 0};
  const PhiloxKey key = philox_key(r.seed, "adam rounding");
  std::vector<State> m(c.start.size()), v(c.start.size());
  Ended end{{}, {}, c.start};
  for (int step = 0; step < r.steps; ++step) {
    const AdamWStep<float> adam(p, scalars_after(step));
    for (std::size_t i = 0; i < m.size(); ++i) {
      float m_i = m[i].value(), v_i = v[i].value();
      const std::size_t n = at(r, step, static_cast<int64_t>(i));
      end.w[i] = adam.update(end.w[i], c.g[n], m_i, v_i);
      const Philox4 draw = kDraws ? philox(key, n, 0) : Philox4{};
      m[i].set(m_i, draw.x);
      v[i].set(v_i, draw.y);
    }
  }
  for (std::size_t i = 0; i < m.size(); ++i) {
    end.m.push_back(m[i].value());
    end.v.push_back(v[i].value());
  }
  return end;
}

Ended run_loop(const SumRequest& r, const Course& c, const SumLoop& loop) {
  return with_float(loop.dtype, [&](auto zero) -> Ended {
    using A = decltype(zero);
    if (loop.method == SumMethod::kahan) return run_loop<KahanState<A>, false>(r, c);
    if (loop.method == SumMethod::stochastic) return run_loop<StochasticState<A>, true>(r, c);
    return run_loop<PlainState<A>, false>(r, c);
  });
}

struct Predictions {
  PredictionNorm m, v, w;
};

// Errors of m and v go into the weights step by step: as they are where they lean to one side; scattered ones
// live on for 1 / (1 - beta) steps, so each counts with all the steps that it will be felt in.
Predictions predict(const SumRequest& r, const Course& c, const SumLoop& loop, DType weights) {
  const FloatFormat format = format_of(loop.dtype);
  Predictions all;
  for (int64_t i = 0; i < r.params; ++i) {
    std::vector<double> g, squares;
    for (int k = 0; k < std::min(kSample, r.steps); ++k) {
      g.push_back(static_cast<double>(c.g[at(r, k * r.steps / std::min(kSample, r.steps), i)]));
      squares.push_back(g.back() * g.back());
    }
    const std::vector<SumPrediction> m = predict_average(g, 1 - kBeta1, r.steps, format, loop.method);
    const std::vector<SumPrediction> v = predict_average(squares, 1 - kBeta2, r.steps, format, loop.method);
    std::vector<double> by_m, by_v;  // what the weight moves by for an error of m, of v
    std::vector<double> walk = {static_cast<double>(c.start[static_cast<std::size_t>(i)])};
    SumPrediction w;
    follow(r, c, i, [&](int step, const Exact& x) {
      // An update uses the moments before they are rounded: it feels the roundings of the step before.
      const SumPrediction fm = step > 0 ? m[static_cast<std::size_t>(step - 1)] : SumPrediction{},
                          fv = step > 0 ? v[static_cast<std::size_t>(step - 1)] : SumPrediction{};
      Exact off = x;
      off.m += kBeta1 * fm.bias;
      off.v = std::max((1 - kBeta2) * x.g * x.g, off.v + kBeta2 * fv.bias);
      w.bias -= off.update() - x.update();
      const double root = std::sqrt(x.v / x.correction2), below = root + kEps;
      by_m.push_back(kLr / x.correction1 / below);
      by_v.push_back(
          root > 0 ? kLr * std::abs(x.m) / x.correction1 / (2 * root * x.correction2 * below * below) : 0);
      // Where all of v may be lost there is no bound on a quotient by it.
      w.worst += fv.worst < x.v ? by_m.back() * fm.worst + by_v.back() * fv.worst : INFINITY;
      walk.push_back(-x.update());
    });
    double felt_m = 0, felt_v = 0;
    for (int step = r.steps - 1; step >= 0; --step) {
      const auto s = static_cast<std::size_t>(step);
      const double m_before = s > 0 ? m[s - 1].variance : 0, v_before = s > 0 ? v[s - 1].variance : 0;
      w.variance += felt_m * felt_m * std::max(0.0, m[s].variance - kBeta1 * kBeta1 * m_before) +
                    felt_v * felt_v * std::max(0.0, v[s].variance - kBeta2 * kBeta2 * v_before);
      felt_m = kBeta1 * (by_m[s] + felt_m);
      felt_v = kBeta2 * (by_v[s] + felt_v);
    }
    const SumPrediction rounded = predict_sum(walk, format_of(weights), SumMethod::plain);
    w.bias += rounded.bias;
    w.variance += rounded.variance;
    w.worst += rounded.worst;
    const auto n = static_cast<std::size_t>(i);
    all.m.add(m.back(), c.m[n]);
    all.v.add(v.back(), c.v[n]);
    all.w.add(w, c.moved[n]);
  }
  return all;
}

// The right values as the state holds them: in one number, by Kahan in two.
double state_floor(const std::vector<double>& right, const SumLoop& loop) {
  if (loop.method != SumMethod::kahan) return rounded_once(right, loop.dtype);
  std::vector<double> held;
  for (double x : right) {
    const double high = held_in(loop.dtype, x);
    held.push_back(high + held_in(loop.dtype, x - high));
  }
  return relative_error(held, right);
}

// Rows for m, v and the weights; the first carries the cost.
void add_rows(SumTable& table, const SumRequest& r, const Course& c, const SumLoop& loop, const Ended& end,
              DType weights, SumRow like) {
  const Predictions f = predict(r, c, loop, weights);
  std::vector<double> moved, held;
  for (std::size_t i = 0; i < end.w.size(); ++i) {
    const auto start = static_cast<double>(c.start[i]);
    moved.push_back(static_cast<double>(end.w[i]) - start);
    held.push_back(held_in(weights, start + c.moved[i]) - start);
  }
  like.dtype = loop.dtype;
  like.roundings = r.steps;
  const auto add = [&](const char* quantity, double error, const PredictionNorm& norm, double floor) {
    like.quantity = quantity;
    like.error = error;
    like.predicted = norm.predicted();
    like.bound = norm.bound();
    like.floor = floor;
    table.rows.push_back(like);
    like.ns = like.bytes = 0;
  };
  add("m", relative_error(end.m, c.m), f.m, state_floor(c.m, loop));
  add("v", relative_error(end.v, c.v), f.v, state_floor(c.v, loop));
  add("weights", relative_error(moved, c.moved), f.w, relative_error(held, c.moved));
}

void add_loop(SumTable& table, const SumRequest& r, const Course& c, const SumLoop& loop) {
  SumRow row{{}, loop.dtype, std::string(name_of(loop.method)), "loop, host"};
  Ended end;
  row.ns = time_loop_ns(r, static_cast<double>(r.steps) * static_cast<double>(r.params),
                        [&] { end = run_loop(r, c, loop); });
  const double numbers = loop.method == SumMethod::kahan ? 2 : 1;
  row.bytes =
      12 + 4 * numbers * static_cast<double>(size_of(loop.dtype));  // weight twice, gradient; m, v twice
  add_rows(table, r, c, loop, end, DType::f32, row);
}

// Weights, gradients and moments all of the dtype, as in the policies fp32 and pure-bf16.
void add_op(SumTable& table, const SumRequest& r, const Course& c, DType dtype, RankContext& ctx) {
  const auto tensors = [&](int64_t n) {
    return AdamWTensors{
        ctx.zeros({n}, dtype), {}, ctx.zeros({n}, dtype), ctx.zeros({n}, dtype), ctx.zeros({n}, dtype)};
  };
  const Tensor scalars = ctx.zeros({static_cast<int64_t>(sizeof(StepScalars))}, DType::u8);
  const AdamWTensors t = tensors(r.params);
  upload_floats(ctx, t.value, c.start);
  for (int step = 0; step < r.steps; ++step) {
    const StepScalars s = scalars_after(step);
    ctx.upload(scalars, &s);
    upload_floats(ctx, t.grad, std::span(c.g).subspan(at(r, step, 0), static_cast<std::size_t>(r.params)));
    adamw(ctx, t, scalars, kBeta1, kBeta2, kEps, 0);
  }
  Ended end{std::vector<float>(c.m.size()), std::vector<float>(c.m.size()), std::vector<float>(c.m.size())};
  download_floats(ctx, t.m, end.m);
  download_floats(ctx, t.v, end.v);
  download_floats(ctx, t.value, end.w);
  const AdamWTensors large = tensors(r.timed());
  const OpCost cost = time_op(ctx, r, AdamWOp::kName, static_cast<double>(r.timed()),
                              [&] { adamw(ctx, large, scalars, kBeta1, kBeta2, kEps, 0); });
  SumRow row{{}, dtype, "op", cost.ran};
  row.ns = cost.ns;
  row.bytes = cost.bytes;
  add_rows(table, r, c, {dtype, SumMethod::plain}, end, dtype, row);
}

}  // namespace

SumTable adam_state_sums(const SumRequest& r) {
  SumTable table{"adam_state",
                 cat("Adam's moments and what the weights moved by, after ", r.steps, " steps"),
                 "parameter and step",
                 {}};
  const Course c = draw_course(r);
  for (const SumLoop& loop : kSumLoops) {
    if (loop.dtype == DType::f32 && loop.method == SumMethod::kahan) continue;  // 8 bytes for a moment
    add_loop(table, r, c, loop);
  }
  RankOptions options;
  options.device = r.device;
  RankContext ctx(options);
  for (DType dtype : kSumDTypes) add_op(table, r, c, dtype, ctx);
  fill_multiples(table);
  return table;
}

}  // namespace kiln
