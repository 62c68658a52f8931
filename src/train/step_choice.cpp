#include "train/step_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/plain_number.h"
#include "base/units.h"

namespace kiln {
namespace {

bool once_a_step(const TimedOp& op) {
  const OpClass c = class_of(op.op);
  return c == OpClass::update || c == OpClass::scalars;
}

BlockRequest block_of(const MemoryRequest& r, const RankOptions& rank) {
  return {.model = r.model,
          .precision = r.layout.precision,
          .batch = r.step.batch,
          .context = r.step.context,
          .rank = rank,
          .measure = false};
}

PolicyPoint point_of(MemoryRequest request, const RankOptions& rank, const Recompute& policy,
                     const StepClock& clock) {
  request.model.recompute = policy;
  const StepPrediction p = predict_step(request, rank);
  return {policy, p.memory.peak_total, step_seconds(request, p, clock)};
}

int data_ranks(const MemoryRequest& r, const RankOptions& rank) {
  return std::max(1, rank.world / r.layout.tensor_ranks);
}

MemoryRequest with_batch(MemoryRequest r, const RankOptions& rank, int64_t batch, int micro_steps) {
  r.step.batch = batch;
  r.step.micro_steps = micro_steps;
  r.layout.narrow_grads = layout_for(r.layout.precision, r.step, data_ranks(r, rank)).narrow_grads;
  return r;
}

}  // namespace

double step_seconds(const MemoryRequest& request, const StepPrediction& prediction, const StepClock& clock) {
  const bool graph = request.step.graph && clock.model.hardware().kind == DeviceType::cuda;
  std::vector<TimedOp> update, rest;
  for (const TimedOp& op : prediction.ops) (once_a_step(op) ? update : rest).push_back(op);
  const StepTime once = clock.model.step(update, graph), micro = clock.model.step(rest, graph);
  // What a step takes beside its ops is in both sums, and counts once.
  const double fixed = clock.model.step({}, graph).total();
  const double all = static_cast<double>(request.step.micro_steps) / std::max(1, prediction.micro_steps);
  return once.total() + (micro.total() - fixed) * all;
}

PolicyChoice choose_policy(const MemoryRequest& request, const RankOptions& rank, std::size_t budget,
                           const StepClock& clock) {
  return choose_policy(block_of(request, rank), budget,
                       [&](const Recompute& r) { return point_of(request, rank, r, clock); });
}

StepFit fit_step(const MemoryRequest& request, const RankOptions& rank, std::size_t memory,
                 const StepClock& clock) {
  const int64_t sequences = request.step.batch * request.step.micro_steps;
  StepFit fit;
  const auto consider = [&](const FittedStep& s, bool fits) {
    if (fit.least.batch == 0 || s.policy.peak < fit.least.policy.peak) fit.least = s;
    if (fits && (!fit.chosen || s.policy.seconds < fit.chosen->policy.seconds)) fit.chosen = s;
  };
  for (int64_t batch = sequences; batch >= 1; --batch) {
    if (sequences % batch != 0 || sequences / batch > (1 << 20)) continue;
    const auto micro_steps = static_cast<int>(sequences / batch);
    const MemoryRequest r = with_batch(request, rank, batch, micro_steps);
    const PolicyPoint none = point_of(r, rank, Recompute::none, clock);
    const bool fits = none.peak <= memory;
    consider({batch, micro_steps, none}, fits);
    if (fits) break;  // smaller ones do the same in more calls
    // What no policy could make faster than what is known already is not looked into.
    if (fit.chosen && none.seconds >= fit.chosen->policy.seconds) continue;
    const PolicyChoice choice = choose_policy(r, rank, memory, clock);
    consider({batch, micro_steps, choice.least}, false);
    if (choice.chosen) consider({batch, micro_steps, *choice.chosen}, true);
  }
  return fit;
}

std::vector<WayOut> ways_out(const MemoryRequest& request, const RankOptions& rank, std::size_t memory,
                             const StepClock& clock) {
  std::vector<WayOut> ways;
  const auto add = [&](std::string options, const PolicyPoint& p) {
    if (p.peak <= memory) ways.push_back({std::move(options), p.peak, p.seconds});
  };
  const int ranks = data_ranks(request, rank);
  const int64_t sequences = request.step.batch * request.step.micro_steps;
  for (int64_t batch = request.step.batch - 1; batch >= 1; --batch) {
    if (sequences % batch != 0) continue;
    const MemoryRequest r = with_batch(request, rank, batch, static_cast<int>(sequences / batch));
    const PolicyPoint p = point_of(r, rank, request.model.recompute, clock);
    if (p.peak > memory) continue;
    add(fmt::format("--batch {} --grad-accum {}", batch * ranks, sequences / batch), p);
    break;
  }
  const PolicyChoice choice = choose_policy(request, rank, memory, clock);
  if (choice.chosen) add(fmt::format("--recompute {}", name_of(choice.chosen->recompute)), *choice.chosen);
  if (request.layout.precision == Precision::fp32) {
    MemoryRequest r = request;
    r.layout.precision = Precision::bf16;
    add("--precision bf16",
        point_of(r, rank, request.model.recompute, clock.for_compute(policy_of(Precision::bf16).compute)));
  }
  for (int64_t context = request.step.context / 2; ways.size() < 3 && context >= 1; context /= 2) {
    MemoryRequest r = request;
    r.step.context = context;
    const PolicyPoint p = point_of(r, rank, request.model.recompute, clock);
    if (p.peak > memory) continue;
    add(fmt::format("--ctx {}", context), p);
    break;
  }
  for (int64_t batch = request.step.batch / 2; ways.empty() && batch >= 1; batch /= 2) {
    const PolicyChoice smaller =
        choose_policy(with_batch(request, rank, batch, request.step.micro_steps), rank, memory, clock);
    if (!smaller.chosen) continue;
    add(fmt::format("--batch {} --recompute {}", batch * ranks, name_of(smaller.chosen->recompute)),
        *smaller.chosen);
  }
  return ways;
}

std::string ways_text(const std::vector<WayOut>& ways, const StepClock& clock) {
  std::string text;
  for (const WayOut& w : ways)
    text += fmt::format("{}{} ({} = {} bytes, {} ms a step by {})", text.empty() ? "" : "; ", w.options,
                        human({w.peak}), w.peak, plain(1e3 * w.seconds, 4), clock.kind());
  return text;
}

}  // namespace kiln
