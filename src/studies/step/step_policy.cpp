#include "studies/step/step_policy.h"

#include <fmt/format.h>

#include "studies/step/step.h"

namespace kiln {

PolicyChoice choose_policy(const StepSpec& spec, const RankOptions& rank, std::size_t budget,
                           const StepClock& clock) {
  const BlockRequest block{.model = spec.model,
                           .precision = spec.precision,
                           .batch = spec.step.batch,
                           .context = spec.step.context,
                           .rank = rank,
                           .measure = false};
  return choose_policy(block, budget, [&](const Recompute& r) {
    StepSpec tried = spec;
    tried.model.recompute = r;
    const StepPlan plan = plan_step(tried, rank);
    return PolicyPoint{r, plan.memory.peak_total, clock.seconds(plan.ops, spec.step.graph)};
  });
}

std::string resolve_policy(StepSpec& spec, const RankOptions& rank, const StepClock& clock) {
  const Recompute asked = spec.model.recompute;
  if (asked.kind != Recompute::Kind::budget) return {};
  if (spec.mode == StepMode::forward) {
    spec.model.recompute = Recompute::none;
    return "forward alone keeps nothing: recompute none";
  }
  const auto budget = static_cast<std::size_t>(asked.budget);
  const PolicyChoice choice = choose_policy(spec, rank, budget, clock);
  spec.model.recompute = chosen_or_throw(choice, budget).recompute;
  return fmt::format("{}: {} (by {}; runs on meta: {})", name_of(asked), policy_text(choice), clock.kind(),
                     choice.probes);
}

std::string resolve_policy(StepSpec& spec, const RankOptions& rank, const std::string& folder) {
  if (spec.model.recompute.kind != Recompute::Kind::budget) return {};
  return resolve_policy(spec, rank,
                        clock_of(folder, rank.device, rank.threads, policy_of(spec.precision).compute));
}

}  // namespace kiln
