#include "studies/ablation/ablation_row.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "device/device_room.h"
#include "rows/row_values.h"
#include "studies/format.h"
#include "studies/memory/memory_study.h"
#include "studies/step/step.h"
#include "studies/variant_check.h"

namespace kiln {
namespace {

StepSpec shape_of(const AblateRequest& r) {
  StepSpec spec;
  spec.model = config_of(r.size);
  spec.precision = r.base;
  spec.step.batch = r.batch;
  spec.step.context = r.context;
  spec.step.micro_steps = r.micro_steps;
  return spec;
}

// Steps between two marks each.
class TimedSteps {
 public:
  TimedSteps(RankContext& ctx, const AblationSetup& setup, const std::shared_ptr<const TokenSet>& tokens)
      : steps_(ctx, setup, tokens), marks_(ctx) {}

  void run() {
    begins_.push_back(marks_.mark());
    steps_.run();
    ends_.push_back(marks_.mark());
  }
  // In seconds, without those of the first `warmups`. Waits for all of them.
  std::vector<double> samples(int warmups) {
    (void)steps_.finish();
    std::vector<double> seconds;
    for (auto i = static_cast<std::size_t>(warmups); i < begins_.size(); ++i)
      seconds.push_back(marks_.ms_between(begins_[i], ends_[i]) / 1e3);
    return seconds;
  }
  bool captured() const { return steps_.captured(); }

 private:
  TextStep steps_;
  StreamMarks marks_;
  std::vector<std::size_t> begins_, ends_;
};

}  // namespace

Json ceilings_row(const Ceilings& ceilings) {
  Json flops = Json::object();
  for (const auto& [dtype, rate] : ceilings.flops)
    flops[std::string(name_of(dtype))] = {{"name", rate.name}, {"per_s", rate.per_second}};
  return {{"copy_bytes_per_s", ceilings.copy}, {"flops", flops}};
}

std::optional<Ceilings> stored_ceilings(const Json& row) {
  const Json stored = row.value("ceilings", Json());
  if (!stored.is_object()) return std::nullopt;
  Ceilings ceilings;
  ceilings.copy = number_at(stored, "copy_bytes_per_s").value_or(0);
  const Json flops = stored.value("flops", Json::object());
  for (const DType dtype : kAblationDTypes) {
    const Json rate = flops.value(std::string(name_of(dtype)), Json::object());
    ceilings.flops[dtype] = {text_at(rate, "name"), number_at(rate, "per_s").value_or(0)};
    if (!(ceilings.flops[dtype].per_second > 0)) return std::nullopt;
  }
  return ceilings.copy > 0 ? std::optional(ceilings) : std::nullopt;
}

AblationRows::AblationRows(const AblateRequest& request, MeasuredPlace place, StepGate::Progress progress)
    : request_(request), place_(std::move(place)), gate_(request.out, std::move(progress)) {
  ThreadPool pool(1);
  tokens_ = byte_tokens(config_of(request_.size).vocab, pool);
}

RankOptions AblationRows::rank_for(const AblationSetup& setup) const {
  RankOptions o = options_for(request_.device, request_.threads, request_.seed);
  o.variants = setup.variants.ops;
  return o;
}

AblationPlan AblationRows::plan(const std::vector<std::string_view>& on) const {
  AblationPlan p;
  p.setup = ablation_setup(shape_of(request_), on, request_.device);
  StepPlan step = plan_step(p.setup.spec, rank_for(p.setup));
  p.memory = step.memory;
  p.ops = std::move(step.ops);
  for (const TimedOp& op : p.ops) {
    std::string& all = p.variants[std::string(op.op)];
    if (all.find(op.variant) == std::string::npos) all += cat(all.empty() ? "" : "+", op.variant);
  }
  return p;
}

Rates AblationRows::rates(Precision p) const {
  return {place_.ceilings.flops.at(policy_of(p).compute).per_second, place_.ceilings.copy};
}

// Of the best way known to do the same step in the same precision: the optimized preset's, or the row's own
// where that computes or moves less (a fused op may pay for speed with work).
double AblationRows::roofline_ms(const AblationPlan& row) {
  AblationSetup best = row.setup;
  best.variants = choose_variants("optimized", "", request_.device.target);
  best.variants.apply_to(best.spec.model);
  AblationSetup own = row.setup;
  best.spec.model.recompute = own.spec.model.recompute = Recompute::none;
  const Rates at = rates(row.setup.spec.precision);
  return std::min(sum_of_rooflines(plan_step(best.spec, rank_for(best)).ops, at),
                  sum_of_rooflines(plan_step(own.spec, rank_for(own)).ops, at));
}

const GateProbe& AblationRows::baseline() {
  if (!baseline_) {
    const AblationSetup setup = ablation_setup(shape_of(request_), {}, request_.device);
    RankContext ctx(rank_for(setup));
    baseline_ = probe_setup(ctx, setup, tokens_, request_.gate_steps, request_.stop);
  }
  return *baseline_;
}

JudgedRow AblationRows::judge(const PlannedRow& row, const AblationPlan& p) {
  const GateProbe& base = baseline();
  JudgedRow judged;
  judged.steps = base.steps;
  judged.first_loss = base.first_loss;
  judged.last_loss = base.last_loss;
  judged.allowed = tolerance_of(p.setup.spec.precision) * request_.tolerance;
  if (row.on.empty()) return judged;
  RankContext ctx(rank_for(p.setup));
  ctx.allocator().add_observer(&full_);
  judged.errors =
      errors_against(base, probe_setup(ctx, p.setup, tokens_, request_.gate_steps, request_.stop));
  return judged;
}

// On the CPU, where a step is done when its call returns and whatever else the machine does comes and goes
// within minutes, each row takes turns with the baseline. On a GPU steps are queued, the next behind the one
// before, and two queues would run into each other: there a row is timed by itself.
std::unique_ptr<RankContext> AblationRows::baseline_beside(const PlannedRow& row, const AblationPlan& p) {
  if (row.group == "baseline" || request_.device.type != DeviceType::cpu) return nullptr;
  const AblationPlan base = plan(row.against);
  if (base.memory.peak_total + p.memory.peak_total > free_memory_on(request_.device)) return nullptr;
  return std::make_unique<RankContext>(rank_for(base.setup));
}

// Nothing where it was stopped.
std::optional<TimedRow> AblationRows::time(const PlannedRow& row, const AblationPlan& p) {
  const std::unique_ptr<RankContext> beside = baseline_beside(row, p);
  std::optional<TimedSteps> other;
  if (beside)
    other.emplace(*beside, ablation_setup(shape_of(request_), row.against, request_.device), tokens_);
  RankContext ctx(rank_for(p.setup));
  ctx.allocator().add_observer(&full_);
  TimedSteps steps(ctx, p.setup, tokens_);
  const int warmups = std::max(request_.warmups, p.setup.spec.step.graph ? 2 : 0);
  for (int i = 0; i < warmups + request_.steps; ++i) {
    if (asked_to_stop()) return std::nullopt;
    if (other) other->run();
    steps.run();
  }
  TimedRow timed;
  timed.timing = summarize(steps.samples(warmups));
  timed.timing.warmups = warmups;
  if (other) timed.baseline = other->samples(warmups);
  timed.captured = steps.captured();
  timed.memory = ctx.allocator().stats();
  timed.best = rates(p.setup.spec.precision);
  timed.roofline_ms = roofline_ms(p);
  return timed;
}

bool AblationRows::judge_and_time(AblationRow& row, const PlannedRow* before) {
  const AblationPlan& p = row.plan;
  const std::size_t free_memory = free_memory_on(request_.device);
  if (!row.planned.cannot.empty()) {
    row.set(RowStatus::unavailable, row.planned.cannot);
  } else if (const AblationPlan other = plan(before ? before->on : row.planned.on);
             before && other.variants == p.variants && other.setup.differences() == p.setup.differences()) {
    row.set(RowStatus::skipped, "no effect: the step runs the same ops with and without it");
  } else if (p.memory.peak_total > free_memory) {
    row.set(RowStatus::oom, fmt::format("it needs {} of memory; {} are available",
                                        human({p.memory.peak_total}), human({free_memory})));
  } else {
    row.judged = judge(row.planned, p);
    const std::string why =
        row.planned.on.empty() ? "" : why_not_passed(row.judged->errors, row.judged->allowed);
    if (!why.empty()) {
      row.fail_gate(why);
      return true;
    }
    const GateReport ops = gate_.check_ops({p.setup.spec, rank_for(p.setup), p.ops, {}, request_.stop});
    if (!note_gate(ops, row)) return true;
    row.timed = time(row.planned, p);
    return row.timed.has_value();
  }
  return true;
}

std::optional<std::string> AblationRows::measure(const PlannedRow& planned, const PlannedRow* before) {
  const LoadWatch load(request_.device);
  const AblationPlan p = plan(planned.on);
  AblationRow row(request_, planned, p, place_.ceilings);
  const auto give_up = [&](RowStatus status, const std::string& why) {
    row.timed.reset();
    row.gate = Gate::not_verified;
    row.set(status, why);
  };
  full_ = {};
  try {
    if (!judge_and_time(row, before)) return std::nullopt;
  } catch (const Stopped&) {
    return std::nullopt;
  } catch (const Error& error) {
    if (planned.group == "baseline") throw;  // without it there is no study
    give_up(full_.happened ? RowStatus::oom : status_of(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    if (planned.group == "baseline") throw;
    give_up(RowStatus::oom, "out of memory on the host");
  }
  return result_line("ablate", ablation_row_json(row), row.timed ? row.timed->timing : Timing{},
                     {{"device_name", place_.name},
                      {"isa", place_.isa},
                      {"threads", place_.threads},
                      {"load", load_json(load.load())}});
}

}  // namespace kiln
