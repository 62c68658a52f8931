#include "studies/gate/gate.h"

#include <fmt/format.h>

#include <chrono>
#include <functional>

#include "base/error.h"
#include "base/plain_number.h"
#include "studies/gate/sampling.h"
#include "studies/place.h"
#include "train/run/tuned.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

std::string text_of(const ModelConfig& c) {
  return fmt::format("V{} C{} F{} L{} H{}/{}x{} eps{} theta{}{} {}{}{}{} {} {}", c.vocab, c.d_model, c.d_ff,
                     c.layers, c.heads, c.kv_heads, c.head_dim(), c.norm_eps, c.rope_theta,
                     c.rope_scaling.kind == RopeScaling::Kind::none ? "" : cat("/", text_of(c.rope_scaling)),
                     c.tied ? "tied " : "", c.fused_qkv ? "qkv " : "", c.fused_gate_up ? "gate_up " : "",
                     c.fused_linear_ce ? "lce" : "", name_of(c.recompute), name_of(c.compile));
}

std::string text_of(const StepSpec& s) {
  return fmt::format("{} {} {} B{} T{} k{} clip{} graph{} {}", text_of(s.model), name_of(s.precision),
                     name_of(s.mode), s.step.batch, s.step.context, s.step.micro_steps,
                     plain(s.step.max_norm, 6), s.step.graph ? 1 : 0, s.step.optimizer.name);
}

std::string text_of(const RankOptions& rank) {
  std::string text = fmt::format("{} threads{} seed{}", rank.device.str(), rank.threads, rank.seed);
  for (const auto& [op, variant] : rank.variants.all()) text += cat(" ", op, "=", variant);
  return text;
}

// What everything that was found depends on, besides the program; empty: too much to say, it is not kept.
std::string place_of(const GatedStep& step) {
  if (!step.rank.attention_choices.empty()) return {};
  std::string text = cat(device_name(step.rank.device), " ", text_of(step.rank));
  if (step.tuning) text += cat(" tuned ", std::hash<std::string>()(tune_text(*step.tuning)));
  return text;
}

std::string key_of_case(const GatedStep& step, const StepCase& c) {
  std::string place = place_of(step);
  if (place.empty()) return {};
  std::string key = cat(place, " | ", c.name);
  for (const TimedOp& op : calls_of_case(c, step.rank)) key += cat(" | ", call_of(op));
  return key;
}

void note(GateReport& report, const std::string& what, const Finding& f) {
  ++report.checks;
  if (!report.worst_op.empty() && f.error * report.worst.allowed <= report.worst.error * f.allowed) return;
  report.worst = f;
  report.worst_op = what;
}

}  // namespace

bool note_gate(const GateReport& report, RowOutcome& row) {
  row.gate = report.gate;
  if (report.gate == Gate::failed) row.fail_gate(report.reason);
  if (report.gate == Gate::not_verified) row.reason = cat("not verified: ", report.reason);
  return !row.gate_failed();
}

StepGate::StepGate(const std::string& folder, Progress progress)
    : progress_(std::move(progress)), cache_(folder) {}

GateReport StepGate::check(const GatedStep& step) {
  const auto begin = Clock::now();
  GateReport report;
  if (check_all_ops(step, report) && check_composed(step, report)) report.gate = Gate::passed;
  cache_.save();
  report.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return report;
}

GateReport StepGate::check_ops(const GatedStep& step) {
  const auto begin = Clock::now();
  GateReport report;
  if (check_all_ops(step, report)) report.gate = Gate::passed;
  cache_.save();
  report.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return report;
}

bool StepGate::check_all_ops(const GatedStep& step, GateReport& report) {
  const std::vector<StepCase> cases = cases_of_step(step.spec, step.rank);
  const std::vector<std::string> missing = uncovered_ops(step.planned, cases, step.rank);
  if (!missing.empty()) {
    report.reason = cat("no check knows ", missing.front(), " as the step calls it",
                        missing.size() > 1 ? cat(", nor ", missing.size() - 1, " more") : std::string());
    return false;
  }
  std::optional<RankContext> ctx;  // only where there is something to run
  for (const StepCase& c : cases) {
    const std::string key = key_of_case(step, c);
    if (const Finding* known = key.empty() ? nullptr : cache_.find(key)) {
      ++report.cached;
      note(report, c.name, *known);
      continue;
    }
    throw_if_stopped(step.stop);
    progress_(cat("checking ", c.name));
    if (!ctx) {
      ctx.emplace(step.rank);
      if (step.tuning) use_tuning(*ctx, *step.tuning);
    }
    const Sampling sampling = gate_sampling(step.rank.device, step.rank.seed);
    const SampledReference reference(c.make(sampling), c.dtype, step.rank.seed, step.rank.threads);
    const SampledResult result = reference.check(*ctx);
    note(report, c.name, result.worst);
    if (!result.passed) {
      report.gate = Gate::failed;
      report.reason = cat(c.name, ": ", result.reason);
      return false;
    }
    if (!key.empty()) cache_.keep(key, result.worst);
  }
  return true;
}

const GateProbe& StepGate::reference(const RankOptions& rank, const StepSpec& composed) {
  const StepSpec spec = reference_spec(composed, rank.device);
  const RankOptions options = reference_rank(rank);
  const std::string key = cat(text_of(options), " ", text_of(spec));
  const auto found = references_.find(key);
  if (found != references_.end()) return found->second;
  return references_.emplace(key, probe_step(options, {}, spec)).first->second;
}

bool StepGate::check_composed(const GatedStep& step, GateReport& report) {
  const StepSpec composed = composed_spec(step.spec, step.rank.device);
  const std::string what =
      fmt::format("the step ({} blocks, {} x {} tokens, {})", composed.model.layers, composed.step.batch,
                  composed.step.context, name_of(composed.precision));
  const std::string place = place_of(step), key = cat(place, " | composed ", text_of(composed));
  if (!place.empty() && cache_.find(key) != nullptr) {
    ++report.checks;
    ++report.cached;
    return true;
  }
  throw_if_stopped(step.stop);
  progress_(cat("checking ", what));
  GateErrors errors;
  const GateProbe& exact = reference(step.rank, composed);
  throw_if_stopped(step.stop);
  const std::string why =
      why_composed_differs(exact, probe_step(step.rank, step.tuning, composed), composed.precision, errors);
  ++report.checks;
  if (!why.empty()) {
    report.gate = Gate::failed;
    report.reason = cat(what, ", against the baseline in fp32: ", why);
    return false;
  }
  if (!place.empty())
    cache_.keep(key, {cat("gradient of ", errors.worst_gradient), errors.gradients,
                      tolerance_of(composed.precision).gradients});
  return true;
}

}  // namespace kiln
