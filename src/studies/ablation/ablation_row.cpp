#include "studies/ablation/ablation_row.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "device/device_room.h"
#include "kiln/bench_check.h"
#include "studies/format.h"
#include "studies/step/step.h"
#include "studies/memory/memory_study.h"
#include "report/result_table.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

StepSpec shape_of(const AblateRequest& r) {
  StepSpec spec;
  spec.model = config_of(r.size);
  spec.step.batch = r.batch;
  spec.step.context = r.context;
  return spec;
}

// JSON knows no infinity; null says that the figure was not finite.
ordered_json finite(double x) { return std::isfinite(x) ? ordered_json(x) : ordered_json(); }

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
  TrainingSteps steps_;
  StreamMarks marks_;
  std::vector<std::size_t> begins_, ends_;
};

double sum_of_floors(const std::vector<TimedOp>& ops, const Rates& best) {
  double sum = 0;
  for (const TimedOp& op : ops) sum += op.floor_ms(best);
  return sum;
}

}  // namespace

nlohmann::json ceilings_row(const Ceilings& ceilings) {
  nlohmann::json flops = nlohmann::json::object();
  for (const auto& [dtype, rate] : ceilings.flops)
    flops[std::string(name_of(dtype))] = {{"name", rate.name}, {"per_s", rate.per_second}};
  return {{"copy_bytes_per_s", ceilings.copy}, {"flops", flops}};
}

std::optional<Ceilings> stored_ceilings(const nlohmann::json& row) {
  const nlohmann::json stored = row.value("ceilings", nlohmann::json());
  if (!stored.is_object()) return std::nullopt;
  Ceilings ceilings;
  ceilings.copy = number_at(stored, "copy_bytes_per_s").value_or(0);
  const nlohmann::json flops = stored.value("flops", nlohmann::json::object());
  for (const DType dtype : kAblationDTypes) {
    const nlohmann::json rate = flops.value(std::string(name_of(dtype)), nlohmann::json::object());
    ceilings.flops[dtype] = {word_at(rate, "name"), number_at(rate, "per_s").value_or(0)};
    if (!(ceilings.flops[dtype].per_second > 0)) return std::nullopt;
  }
  return ceilings.copy > 0 ? std::optional(ceilings) : std::nullopt;
}

AblationRows::AblationRows(const AblateRequest& request, MeasuredPlace place)
    : request_(request), place_(std::move(place)) {
  ThreadPool pool(1);
  tokens_ = byte_tokens(request_.size.vocab, pool);
}

RankOptions AblationRows::rank_for(const AblationSetup& setup) const {
  RankOptions o = options_for(request_.device, request_.threads, request_.seed);
  o.variants = setup.variants.ops;
  return o;
}

AblationRows::Plan AblationRows::plan(const std::vector<std::string_view>& on) const {
  Plan p;
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
double AblationRows::floor_ms(const Plan& row) {
  AblationSetup best = row.setup;
  best.variants = choose_variants("optimized", "", request_.device.target);
  best.variants.apply_to(best.spec.model);
  AblationSetup own = row.setup;
  best.spec.model.recompute = own.spec.model.recompute = Recompute::none;
  const Rates at = rates(row.setup.spec.precision);
  return std::min(sum_of_floors(plan_step(best.spec, rank_for(best)).ops, at),
                  sum_of_floors(plan_step(own.spec, rank_for(own)).ops, at));
}

const GateProbe& AblationRows::baseline() {
  if (!baseline_) {
    const AblationSetup setup = ablation_setup(shape_of(request_), {}, request_.device);
    RankContext ctx(rank_for(setup));
    baseline_ = probe_setup(ctx, setup, tokens_, request_.gate_steps);
  }
  return *baseline_;
}

ordered_json AblationRows::described(const PlannedRow& row, const Plan& p) const {
  const StepSpec& spec = p.setup.spec;
  return {{"group", row.group},
          {"switch", row.name},
          {"switches", row.on},
          {"size", request_.size.name},
          {"mode", name_of(spec.mode)},
          {"device", request_.device.str()},
          {"dtype", name_of(spec.precision)},
          {"batch", spec.step.batch},
          {"ctx", spec.step.context},
          {"vocab", spec.model.vocab},
          {"params", param_count(request_.size)},
          {"recompute", name_of(spec.model.recompute)},
          {"prefetch", p.setup.loader_prefetch ? "on" : "off"},
          {"variant_set", p.setup.differences()},
          {"ops", p.variants},
          {"predicted_peak_bytes", p.memory.peak_total},
          {"predicted_peak_by_tag", tags_json(p.memory.peak)},
          {"floor_bytes", floor_bytes(spec)},
          {"ceilings", ceilings_row(place_.ceilings)}};
}

bool AblationRows::judge(const PlannedRow& row, const Plan& p, ordered_json& line) {
  const GateProbe& base = baseline();
  GateErrors errors;
  if (!row.on.empty()) {
    RankContext ctx(rank_for(p.setup));
    ctx.allocator().add_observer(&full_);
    errors = errors_against(base, probe_setup(ctx, p.setup, tokens_, request_.gate_steps));
  }
  const GateTolerance allowed = tolerance_of(p.setup.spec.precision) * request_.tolerance;
  line["gate_steps"] = base.steps;
  line["gate_errors"] = {{"logits", finite(errors.logits)},
                         {"gradients", finite(errors.gradients)},
                         {"worst_gradient", errors.worst_gradient},
                         {"loss", finite(errors.loss)}};
  line["gate_tolerances"] = {
      {"logits", allowed.logits}, {"gradients", allowed.gradients}, {"loss", allowed.loss}};
  line["baseline_first_loss"] = base.first_loss;
  line["baseline_last_loss"] = base.last_loss;
  const std::string why = row.on.empty() ? "" : why_not_passed(errors, allowed);
  line["gate"] = why.empty() ? "passed" : "failed";
  if (!why.empty()) line["reason"] = why;
  return why.empty();
}

// On the CPU, where a step is done when its call returns and whatever else the machine does comes and goes
// within minutes, each row takes turns with the baseline. On a GPU steps are queued, the next behind the one
// before, and two queues would run into each other: there a row is timed by itself.
std::unique_ptr<RankContext> AblationRows::baseline_beside(const PlannedRow& row, const Plan& p) {
  if (row.group == "baseline" || request_.device.type != DeviceType::cpu) return nullptr;
  const Plan base = plan({});
  if (base.memory.peak_total + p.memory.peak_total > room_on(request_.device)) return nullptr;
  return std::make_unique<RankContext>(rank_for(base.setup));
}

// False where it was stopped.
bool AblationRows::time(const PlannedRow& row, const Plan& p, ordered_json& line) {
  const std::unique_ptr<RankContext> beside = baseline_beside(row, p);
  std::optional<TimedSteps> other;
  if (beside) other.emplace(*beside, ablation_setup(shape_of(request_), {}, request_.device), tokens_);
  RankContext ctx(rank_for(p.setup));
  ctx.allocator().add_observer(&full_);
  TimedSteps steps(ctx, p.setup, tokens_);
  const int warmups = std::max(request_.warmups, p.setup.spec.step.graph ? 2 : 0);
  for (int i = 0; i < warmups + request_.steps; ++i) {
    if (asked_to_stop()) return false;
    if (other) other->run();
    steps.run();
  }
  std::vector<double> samples = steps.samples(warmups);
  if (other) {
    ordered_json turns = ordered_json::array();
    for (const double s : other->samples(warmups)) turns.push_back(std::round(ms(s) * 1e6) / 1e6);
    line["baseline_samples"] = turns;
  }
  timing_ = summarize(std::move(samples));
  timing_.warmups = warmups;
  const StepSpec& spec = p.setup.spec;
  const auto tokens = static_cast<double>(spec.step.batch * spec.step.context);
  const double flops = train_flops_per_token(request_.size, spec.step.context) * tokens;
  const MemoryStats measured = ctx.allocator().stats();
  const Rates best = rates(spec.precision);
  Cost executed;
  for (const TimedOp& op : p.ops) executed = executed + op.cost;
  line.update({{"graph", steps.captured() ? "captured" : "off"},
               {"tokens_per_step", tokens},
               {"tokens_per_s", tokens / timing_.p50},
               {"flops", flops},
               {"executed_flops", executed.flops},
               {"bytes", executed.bytes},
               {"tflops", flops / timing_.p50 / 1e12},
               {"predicted_ms", sum_of_floors(p.ops, best)},
               {"floor_ms", floor_ms(p)},
               {"peak_bytes", measured.peak_total},
               {"peak_by_tag", tags_json(measured.peak)},
               {"reserved_bytes", measured.peak_reserved}});
  return true;
}

std::optional<std::string> AblationRows::measure(const PlannedRow& row, const PlannedRow* before) {
  const Plan p = plan(row.on);
  ordered_json line = described(row, p);
  timing_ = {};
  const auto say = [&](const char* gate, const std::string& why) {
    line["gate"] = gate;
    line["reason"] = why;
  };
  full_ = {};
  try {
    const std::size_t room = room_on(request_.device);
    if (!row.cannot.empty()) {
      say("not available", row.cannot);
    } else if (const Plan other = plan(before ? before->on : row.on);
               before && other.variants == p.variants && other.setup.differences() == p.setup.differences()) {
      say("no effect", "here the step runs the same ops with it and without it");
    } else if (p.memory.peak_total > room) {
      say("no memory", fmt::format("it needs {} of memory; {} are available", human({p.memory.peak_total}),
                                   human({room})));
    } else if (judge(row, p, line) && !time(row, p, line)) {
      return std::nullopt;
    }
  } catch (const Error& error) {
    if (row.group == "baseline") throw;  // without it there is no study
    timing_ = {};
    say(full_.happened ? "no memory" : "failed", error.what());
  } catch (const std::bad_alloc&) {
    if (row.group == "baseline") throw;
    timing_ = {};
    say("no memory", "out of memory on the host");
  }
  return result_line("ablate", line, timing_,
                     {{"device_name", place_.name}, {"isa", place_.isa}, {"threads", place_.threads}});
}

}  // namespace kiln::cli
