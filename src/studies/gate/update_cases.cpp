#include "studies/gate/update_cases.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <set>

#include "base/plain_number.h"
#include "model/model.h"
#include "ops/adamw/adamw.h"
#include "ops/cases/run_case.h"
#include "ops/sgd/sgd.h"
#include "optim/optimizers.h"
#include "train/step.h"

namespace kiln {
namespace {

using K = CaseInput::Kind;

constexpr double kPower1 = 0.9, kPower2 = 0.999, kScale = 4;

// A record as after some steps, with a norm to clip and a scale to undo.
Tensor record(RankContext& ctx, StepScalars s = {}) {
  const Tensor scalars = ctx.empty({static_cast<int64_t>(sizeof(StepScalars))}, DType::u8, Tag::optim);
  s.attempt = 1;
  s.lr = 1e-2;
  s.rate1_power = kPower1;
  s.rate2_power = kPower2;
  s.clip = 0.5;
  s.loss_scale = kScale;
  s.unscale = 1 / kScale;
  if (!ctx.device().is_meta()) ctx.upload(scalars, &s);
  return scalars;
}

// Fields of the record: fp64 numbers that begin at `first`.
Tensor fields(const Tensor& scalars, std::size_t first, int64_t count) {
  return scalars.view_as(DType::f64).narrow(0, static_cast<int64_t>(first / sizeof(double)), count);
}

using Formula = std::function<std::vector<double>(double loss)>;

// One number in, some fields of the record out: nothing to sample, and one row in most tables, so that what
// it must give is said here.
SampledCase scalar_case(const char* op,
                        std::function<CaseOutputs(RankContext&, std::span<const CaseArgument>)> call,
                        const Formula& formula) {
  CaseInput loss{"loss", K::state, {1}};
  loss.absolute = true;
  const OpCase whole{op, "1", {loss}, std::move(call)};
  OpCase definition = whole;
  definition.call = [formula](RankContext& ctx, std::span<const CaseArgument> in) {
    const bool meta = ctx.device().is_meta();
    const std::vector<double> values = formula(meta ? 0 : fetch(ctx, in[0].tensor)[0]);
    const Tensor y = ctx.empty({static_cast<int64_t>(values.size())}, DType::f64);
    if (!meta) ctx.upload(y, values.data());
    return y;
  };
  SampledCase s{whole, {{definition, {{0, Slice::whole()}}, {Slice::whole()}}}};
  s.taken = s.total = 1;
  s.backward = false;
  return s;
}

// The tensors of an optimizer by what holds them: the kinds of a case stand for dtypes.
struct Held {
  DType value, grad, state;
  bool split;
  K kind_of(DType t) const { return t == value ? K::activation : K::state; }
};

// Elements of a flat range of `count`, whose decay is the same in all segments: their ends alone matter.
SampledCase adamw_case(const Held& held, int64_t count, const std::vector<int64_t>& ends,
                       const AdamWOptions& o, const Sampling& sampling) {
  const auto make = [&](int64_t n, const std::vector<int64_t>& here) {
    const Shape flat{n};
    CaseInput v{"v", held.kind_of(held.state), flat};
    v.absolute = true;
    OpCase c{"adamw", fmt::format("params={}", n), {{"value", K::activation, flat}}, {}};
    if (held.split) c.inputs.push_back({"low", K::low_half, flat});
    c.inputs.push_back({"grad", held.kind_of(held.grad), flat});
    c.inputs.push_back({"m", held.kind_of(held.state), flat});
    c.inputs.push_back(v);
    c.call = [o, here, split = held.split](RankContext& ctx, std::span<const CaseArgument> in) {
      const std::size_t at = split ? 2 : 1;
      const AdamWTensors t{in[0].tensor.detach(), split ? in[1].tensor : Tensor(), in[at].tensor.detach(),
                           in[at + 1].tensor.detach(), in[at + 2].tensor.detach()};
      const Tensor scalars = record(ctx);
      if (here.size() > 1) {
        std::vector<DecaySegment> segments;
        for (const int64_t end : here) segments.push_back({end, o.decay});
        adamw_range(ctx, t, scalars, o.beta1, o.beta2, o.eps, make_decay_segments(ctx, segments));
      } else {
        adamw(ctx, t, scalars, o.beta1, o.beta2, o.eps, o.decay);
      }
      CaseOutputs y{t.value, t.m, t.v};
      y.low = t.low;
      return y;
    };
    return c;
  };
  constexpr double kWork = 1e5;  // of an element: so many that some hundred are looked at
  SampledCase c = sample_rows([&](int64_t n) { return make(n, {}); }, count, kWork, sampling);
  c.whole = make(count, ends);
  c.backward = false;
  c.by_own_dtype = true;
  return c;
}

SampledCase sgd_case(const Held& held, int64_t count, const SgdOptions& o, const Sampling& sampling) {
  const auto make = [&](int64_t n) {
    const Shape flat{n};
    OpCase c{"sgd", fmt::format("params={}", n), {{"value", K::activation, flat}}, {}};
    if (held.split) c.inputs.push_back({"low", K::low_half, flat});
    c.inputs.push_back({"grad", held.kind_of(held.grad), flat});
    if (o.momentum > 0) c.inputs.push_back({"b", K::state, flat});
    c.call = [o, split = held.split](RankContext& ctx, std::span<const CaseArgument> in) {
      const std::size_t at = split ? 2 : 1;
      const Tensor value = in[0].tensor.detach(), b = o.momentum > 0 ? in[at + 1].tensor : Tensor();
      sgd(ctx, value, split ? in[1].tensor : Tensor(), in[at].tensor.detach(), b, record(ctx), o.momentum,
          o.decay);
      CaseOutputs y{value};
      y.low = split ? in[1].tensor : Tensor();
      if (b.defined()) y.tensors.push_back(b);
      return y;
    };
    return c;
  };
  constexpr double kWork = 1e5;  // of an element: so many that some hundred are looked at
  SampledCase c = sample_rows(make, count, kWork, sampling);
  c.backward = false;
  c.by_own_dtype = true;
  return c;
}

SampledCase square_sum_case(const Held& held, int64_t count, const Sampling& sampling) {
  const auto make = [&](int64_t n) {
    return OpCase{"square_sum",
                  fmt::format("params={}", n),
                  {{"grad", held.kind_of(held.grad), {n}}},
                  [](RankContext& ctx, std::span<const CaseArgument> in) {
                    const Tensor scalars = record(ctx);
                    square_sum(ctx, in[0].tensor.detach(), scalars);
                    return fields(scalars, offsetof(StepScalars, square_sum), 1);
                  }};
  };
  constexpr double kWork = 10;
  SampledCase c = sample_rows(make, count, kWork, sampling);
  c.parts[0].outputs = {Slice::whole()};  // one sum: everything else is zero
  c.elsewhere = {0.0};
  c.backward = false;
  return c;
}

// Accumulation, norm, clip factor and loss scale: the record's own ops.
void add_scalar_cases(const StepSpec& spec, const PrecisionPolicy& policy, const StepRates& rates,
                      std::vector<StepCase>& cases) {
  const double share = 1.0 / spec.step.micro_steps, clip = spec.step.max_norm;
  const DType dtype = policy.value;
  const auto add = [&](const char* op, const std::string& what,
                       const std::function<CaseOutputs(RankContext&, std::span<const CaseArgument>)>& call,
                       const Formula& formula) {
    cases.push_back(
        {cat(op, " ", what), dtype, [=](const Sampling&) { return scalar_case(op, call, formula); }});
  };
  constexpr double kLoss = 0.75, kSquares = 144;
  for (const bool first : {true, false}) {
    add(
        "accumulate_loss", fmt::format("{}share={}", first ? "first," : "", plain(share, 6)),
        [=](RankContext& ctx, std::span<const CaseArgument> in) {
          StepScalars before;
          before.loss = kLoss;
          const Tensor scalars = record(ctx, before);
          accumulate_loss(ctx, in[0].tensor, scalars, first, share);
          return fields(scalars, offsetof(StepScalars, loss), 1);
        },
        [=](double loss) { return std::vector<double>{(first ? 0 : kLoss) + loss * share}; });
  }
  const int64_t interval = policy.scales_loss ? spec.step.loss_scale.interval : 0;
  add(
      "finish_step_scalars",
      fmt::format("clip={},rates={},{},interval={}", plain(clip, 6), plain(rates.one, 6), plain(rates.two, 6),
                  interval),
      [=](RankContext& ctx, std::span<const CaseArgument>) {
        StepScalars before;
        before.loss = kLoss;
        before.square_sum = kSquares;
        const Tensor scalars = record(ctx, before);
        finish_step_scalars(ctx, scalars, clip, rates, interval);
        return fields(scalars, offsetof(StepScalars, rate1_power), 7);
      },
      [=](double) {
        const double norm = std::sqrt(kSquares) / kScale;
        return std::vector<double>{kPower1 * rates.one,
                                   kPower2 * rates.two,
                                   kLoss,
                                   kSquares,
                                   norm,
                                   clip > 0 && norm > clip ? clip / norm : 1,
                                   interval == 1 ? kScale * LossScaling::kGrowth : kScale};
      });
  if (!policy.scales_loss) return;
  add(
      "loss_gradient", fmt::format("share={}", plain(share, 6)),
      [=](RankContext& ctx, std::span<const CaseArgument>) {
        const Tensor grad = ctx.empty({1}, stat_dtype(dtype));
        loss_gradient(ctx, record(ctx), share, grad);
        return grad;
      },
      [=](double) { return std::vector<double>{share * kScale}; });
}

// The definition that an optimizer's update is checked against.
struct UpdateCase {
  std::string_view optimizer;
  bool takes_ranges;  // one call for all weights, where the op can
  SampledCase (*make)(const Held&, int64_t count, const std::vector<int64_t>& ends, const OptimizerOptions&,
                      const Sampling&);
};

constexpr UpdateCase kUpdateCases[] = {
    {"adamw", true,
     [](const Held& held, int64_t count, const std::vector<int64_t>& ends, const OptimizerOptions& o,
        const Sampling& s) { return adamw_case(held, count, ends, o.adamw, s); }},
    {"sgd", false,
     [](const Held& held, int64_t count, const std::vector<int64_t>&, const OptimizerOptions& o,
        const Sampling& s) { return sgd_case(held, count, o.sgd, s); }},
};

const UpdateCase& case_of(std::string_view optimizer) {
  for (const UpdateCase& c : kUpdateCases) {
    if (c.optimizer == optimizer) return c;
  }
  throw Error(
      cat("the update of '", optimizer, "' has no definition to be checked against, so it is not timed"),
      "give it a row in src/studies/gate/update_cases.cpp");
}

}  // namespace

void check_update_has_a_case(std::string_view optimizer) { (void)case_of(optimizer); }

void add_update_cases(const StepSpec& spec, const RankOptions& rank, std::vector<StepCase>& cases) {
  RankOptions options = rank;
  options.device = Device::meta(rank.device.target);
  options.backend = {};
  RankContext ctx(options);
  const std::unique_ptr<Model> model = make_model(spec.model);
  ParamStore& params = model->params();
  params.materialize(ctx, layout_for(spec.precision, spec.step));
  const PrecisionPolicy policy = params.policy();
  const Held held{policy.value, policy.grad, policy.state, policy.split};
  const std::vector<ParamSpan> spans = params.spans();
  const OptimizerOptions chosen = spec.step.optimizer;
  const UpdateCase& update = case_of(chosen.name);
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(spec.step.optimizer, ctx, spans);
  bool ranges = false;
  std::vector<int64_t> ends;
  std::set<int64_t> counts;
  for (const ParamSpan& s : spans) {
    const Tensor state = ctx.empty({s.value.numel()}, s.state, Tag::optim);
    ranges = adamw_takes_ranges(ctx, {s.value, s.low, s.grad, state, state});
    ends.push_back((ends.empty() ? 0 : ends.back()) + s.value.numel());
    counts.insert(s.value.numel());
  }
  const auto add = [&](int64_t count, const std::vector<int64_t>& within) {
    cases.push_back(
        {fmt::format("{} params={}", chosen.name, count), held.value,
         [=, make = update.make](const Sampling& s) { return make(held, count, within, chosen, s); }});
  };
  if (update.takes_ranges && ranges) {
    add(ends.back(), ends);
  } else {
    for (const int64_t count : counts) add(count, {});
  }
  const int64_t all = params.grads().numel();
  cases.push_back({fmt::format("square_sum params={}", all), held.value,
                   [=](const Sampling& s) { return square_sum_case(held, all, s); }});
  add_scalar_cases(spec, policy, optimizer->rates(), cases);
}

}  // namespace kiln
