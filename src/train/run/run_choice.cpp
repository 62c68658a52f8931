#include "train/run/run_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/json_reader.h"
#include "base/mapped_file.h"
#include "base/plain_number.h"
#include "base/units.h"
#include "train/run/train_options.h"

namespace kiln {
namespace {

Json asked_json(const TrainRequest& r) {
  return {{"fit", r.fit},     {"recompute", r.recompute}, {"batch", r.batch}, {"grad_accum", r.micro_steps},
          {"ctx", r.context}, {"precision", r.precision}, {"ranks", r.ranks}, {"strategy", r.strategy}};
}

Json chosen_json(const RunChoice& c) {
  return {{"batch", c.batch}, {"grad_accum", c.micro_steps}, {"recompute", c.recompute}, {"why", c.why}};
}

RunChoice read_choice(const JsonValue& v) {
  RunChoice c;
  c.batch = v.at("batch").integer(1, int64_t{1} << 40);
  c.micro_steps = static_cast<int>(v.at("grad_accum").integer(1, 1 << 20));
  c.recompute = v.at("recompute").string();
  c.why = v.at("why").string();
  (void)parse_recompute("recompute", c.recompute);
  return c;
}

constexpr JsonLimits kLimits{.max_bytes = std::size_t{1} << 20, .max_values = 10'000};

RunChoice fitted(const TrainRequest& r, const MemoryRequest& step, const RankOptions& rank,
                 std::size_t free_memory, const StepClock& clock) {
  const StepFit fit = fit_step(step, rank, free_memory, clock);
  const int64_t ranks = data_ranks_of(r);
  if (!fit.chosen)
    throw Error(
        fmt::format("--fit: no way to run this model fits into {}; the least is {} ({} bytes), by "
                    "--batch {} --grad-accum {} --recompute {}",
                    human({free_memory}), human({fit.least.policy.peak}), fit.least.policy.peak,
                    fit.least.batch * ranks, fit.least.micro_steps, name_of(fit.least.policy.recompute)),
        "take --precision bf16, or a smaller --ctx or --size");
  const FittedStep& f = *fit.chosen;
  RunChoice c;
  c.batch = f.batch * ranks;
  c.micro_steps = f.micro_steps;
  c.recompute = name_of(f.policy.recompute);
  c.why = fmt::format(
      "--fit: --batch {} --grad-accum {} --recompute {}: peak {} of {} free, the fastest of what "
      "fits: {} ms a step by {} ({})",
      c.batch, c.micro_steps, c.recompute, human({f.policy.peak}), human({free_memory}),
      plain(1e3 * f.policy.seconds, 4), clock.kind(), clock.from);
  return c;
}

}  // namespace

bool asks_for_choice(const TrainRequest& r) {
  return r.fit || parse_recompute("--recompute", r.recompute).kind == Recompute::Kind::budget;
}

RunChoice choose_for_run(const TrainRequest& r, const MemoryRequest& step, const RankOptions& rank,
                         std::size_t free_memory, const StepClock& clock) {
  if (r.fit) return fitted(r, step, rank, free_memory, clock);
  const auto budget = static_cast<std::size_t>(parse_recompute("--recompute", r.recompute).budget);
  const PolicyChoice choice = choose_policy(step, rank, budget, clock);
  RunChoice c;
  c.batch = r.batch;
  c.micro_steps = r.micro_steps;
  c.recompute = name_of(chosen_or_throw(choice, budget).recompute);
  c.why = fmt::format("{}: {} (by {}, {})", r.recompute, policy_text(choice), clock.kind(), clock.from);
  return c;
}

void take_choice(const RunChoice& choice, TrainRequest& r) {
  // As many sequences are validated on as were asked for.
  r.eval_batches = std::max<int64_t>(1, r.eval_batches * r.batch / choice.batch);
  r.batch = choice.batch;
  r.micro_steps = choice.micro_steps;
  r.recompute = choice.recompute;
  r.fit = false;
}

Json choice_json(const TrainRequest& asked, const RunChoice& choice) {
  return {{"asked", asked_json(asked)}, {"chosen", chosen_json(choice)}};
}

std::string choice_text(const RunChoice& choice) { return chosen_json(choice).dump(); }

RunChoice parse_choice(const std::string& text) {
  const Json json = parse_json(text, kLimits, "the first rank's choice");
  return read_choice(JsonValue(json, "the first rank's choice"));
}

std::optional<RunChoice> stored_choice(const TrainRequest& asked) {
  const std::string path = (std::filesystem::path(asked.run) / "run.json").string();
  if (asked.fresh || !std::filesystem::exists(path)) return {};
  try {
    const Json json = parse_json(read_small_file(path, kLimits.max_bytes, "a run.json"), kLimits, "run.json");
    const JsonValue root(json, "run.json");
    if (!root.has("choice") || root.at("choice").at("asked").raw() != asked_json(asked)) return {};
    return read_choice(root.at("choice").at("chosen"));
  } catch (const Error&) {  // chosen anew, then
    return {};
  }
}

}  // namespace kiln
