#include "studies/memory/memory_study.h"

#include <algorithm>
#include <chrono>

#include "perf/memory/block_residuals.h"
#include "studies/step/step.h"
#include "train/memory_prediction.h"

namespace kiln {
namespace {

class FlopCount final : public OpObserver {
 public:
  explicit FlopCount(RankContext& ctx) : ctx_(ctx) { ctx.add_observer(this); }
  ~FlopCount() override { ctx_.remove_observer(this); }
  FlopCount(const FlopCount&) = delete;
  FlopCount& operator=(const FlopCount&) = delete;
  void on_op_begin(RankContext&, const OpEvent& e) override { flops += e.cost.flops; }
  double flops = 0;

 private:
  RankContext& ctx_;
};

// The score matrix of one layer, as attention's rows keep it.
std::size_t score_bytes(const StepSpec& spec) {
  const auto T = static_cast<std::size_t>(spec.step.context);
  const std::size_t heads = static_cast<std::size_t>(spec.step.batch * spec.model.heads);
  return heads * T * T * size_of(policy_of(spec.precision).compute);
}

}  // namespace

RankOptions planned_for(const RankOptions& rank) {
  RankOptions meta = rank;
  meta.device = Device::meta(rank.device.target);
  meta.backend = {};
  return meta;
}

MemoryTracedStep trace_step(StepSpec spec, const RankOptions& rank, const MemoryTraceOptions& options) {
  spec.step.graph = false;
  MemoryTracedStep traced;
  RankContext ctx(rank);
  MemoryTrace trace(ctx, options.most_events);
  {
    SyntheticStep step(ctx, spec);
    std::vector<double> samples;
    for (int i = 0; i < options.steps; ++i) {
      trace.mark(cat("step ", i + 1));
      FlopCount count(ctx);
      const auto begun = std::chrono::steady_clock::now();
      step.run();
      step.finish();
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
      if (i > 0 || options.steps == 1) samples.push_back(seconds);
      traced.flops = count.flops;
    }
    traced.stats = ctx.allocator().stats();
    traced.record = trace.take();
    if (!rank.device.is_meta()) traced.timing = summarize(std::move(samples));
  }
  return traced;
}

std::size_t floor_bytes(const StepSpec& spec) {
  const PrecisionPolicy p = policy_of(spec.precision, spec.step.micro_steps == 1);
  std::size_t each = size_of(p.value);
  if (spec.mode != StepMode::forward) each += size_of(p.grad) + (p.split ? 2 : 0);
  if (spec.mode == StepMode::full) each += 2 * size_of(p.state);
  return each * static_cast<std::size_t>(count_params(spec.model).total());
}

std::vector<ScalingSeries> memory_scaling(const ScalingRequest& request) {
  std::vector<ScalingSeries> all;
  for (const std::string& variant : request.attention) {
    ScalingSeries series{variant, {}, {}};
    RankOptions rank = request.rank;
    rank.variants.set("attention", variant);
    std::vector<double> x, y;
    for (const int64_t context : request.contexts) {
      StepSpec spec = request.spec;
      spec.step.context = context;
      const MemoryTracedStep planned = trace_step(spec, planned_for(rank));
      ScalingPoint point{context, planned.stats, {}, planned.stats.peak[Tag::activation]};
      point.scores = scores_at_peak(analyse(planned.record), score_bytes(spec));
      if (request.measure && request.measure(spec, planned.stats, planned.flops))
        point.measured = trace_step(spec, rank).stats;
      x.push_back(static_cast<double>(context));
      y.push_back(static_cast<double>(point.activations));
      series.points.push_back(point);
    }
    if (x.size() > 1) series.fit = fit_power(x, y);
    all.push_back(std::move(series));
  }
  return all;
}

std::size_t recompute_formula(std::size_t fixed, std::size_t stream, std::size_t block, int64_t layers,
                              int64_t k) {
  const int64_t inputs = (layers + k - 1) / k;
  return fixed + static_cast<std::size_t>(inputs) * stream +
         static_cast<std::size_t>(std::min(k, layers)) * block;
}

namespace {

void measure_points(const RecomputeSweepRequest& request, RecomputeSweep& sweep) {
  for (SweepPoint& p : sweep.points) {
    StepSpec spec = request.spec;
    spec.model.recompute = p.recompute;
    if (!request.measure || !request.measure(spec, p.predicted, p.flops)) continue;
    const MemoryTracedStep run = trace_step(spec, request.rank, {.steps = 1 + std::max(1, request.steps)});
    p.measured = run.stats;
    p.timing = run.timing;
  }
}

}  // namespace

namespace {

constexpr int kBudgets = 6;  // between the peaks of none and nested, evenly

// The fastest policy of each budget, where it is not the one before.
std::vector<SweepPoint> budget_points(const RecomputeSweepRequest& request, const SweepPoint& none,
                                      const SweepPoint& nested) {
  std::vector<SweepPoint> points;
  const std::size_t most = none.predicted.peak_total, least = nested.predicted.peak_total;
  for (std::size_t i = 1; least < most && i <= kBudgets; ++i) {
    const std::size_t budget = most - (most - least) / (kBudgets + 1) * i;
    const PolicyChoice choice = choose_policy(request.spec, request.rank, budget, *request.clock);
    if (!choice.chosen || choice.chosen->recompute.kind != Recompute::Kind::plan) continue;
    if (!points.empty() && points.back().recompute == choice.chosen->recompute) continue;
    SweepPoint& p = points.emplace_back();
    p.recompute = choice.chosen->recompute;
    p.budget = budget;
  }
  return points;
}

}  // namespace

RecomputeSweep recompute_sweep(const RecomputeSweepRequest& request) {
  RecomputeSweep sweep;
  const int64_t layers = request.spec.model.layers;
  const BlockResiduals block = block_residuals({.model = request.spec.model,
                                                .precision = request.spec.precision,
                                                .batch = request.spec.step.batch,
                                                .context = request.spec.step.context,
                                                .rank = request.rank,
                                                .measure = false});
  sweep.stream = round_up(block.stream, 512);
  sweep.block = block.predicted.kept;
  const auto plan = [&](const Recompute& kind) {
    SweepPoint p;
    p.recompute = kind;
    StepSpec spec = request.spec;
    spec.model.recompute = kind;
    const MemoryTracedStep planned = trace_step(spec, planned_for(request.rank));
    p.predicted = planned.stats;
    p.flops = planned.flops;
    if (request.clock != nullptr) p.seconds = request.clock->seconds(plan_step(spec, request.rank).ops);
    return p;
  };
  sweep.points.push_back(plan(Recompute::none));
  const std::size_t kept = static_cast<std::size_t>(layers) * sweep.block,
                    all = sweep.points[0].predicted.peak_total;
  sweep.fixed = all - std::min(all, kept);
  sweep.points[0].formula = all;  // what the others are reckoned from
  sweep.floor = floor_bytes(request.spec);

  std::vector<SweepPoint> spans;
  const auto add = [&](int64_t k) {
    const auto same = [k](const SweepPoint& p) { return p.recompute.k == k; };
    if (k < 1 || k > layers || std::any_of(spans.begin(), spans.end(), same)) return;
    spans.push_back(plan(Recompute::every(k)));
    spans.back().formula = recompute_formula(sweep.fixed, sweep.stream, sweep.block, layers, k);
  };
  const auto least = [&] {
    return std::min_element(spans.begin(), spans.end(), [](const SweepPoint& a, const SweepPoint& b) {
      return a.predicted.peak_total < b.predicted.peak_total;
    });
  };
  for (const int64_t k : request.ks) add(k);
  for (int64_t best = 0; !spans.empty() && best != least()->recompute.k;) {  // until its neighbours are worse
    best = least()->recompute.k;
    add(best - 1);
    add(best + 1);
  }
  std::sort(spans.begin(), spans.end(),
            [](const SweepPoint& a, const SweepPoint& b) { return a.recompute.k < b.recompute.k; });
  if (!spans.empty()) sweep.best = 1 + static_cast<std::size_t>(least() - spans.begin());
  sweep.points.insert(sweep.points.end(), spans.begin(), spans.end());
  const SweepPoint nested = plan(Recompute::nested);  // by no formula: the textbook counts no transients
  if (request.clock != nullptr) {
    for (const SweepPoint& found : budget_points(request, sweep.points.front(), nested)) {
      sweep.points.push_back(plan(found.recompute));
      sweep.points.back().budget = found.budget;
    }
  }
  sweep.points.push_back(nested);
  measure_points(request, sweep);
  return sweep;
}

}  // namespace kiln
