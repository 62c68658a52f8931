#include <fmt/format.h>

#include <algorithm>

#include "studies/calc/derivation.h"
#include "studies/calc/step_theory.h"
#include "studies/format.h"
#include "train/memory_prediction.h"

namespace kiln {
namespace {

struct TagRow {
  std::string tag, meaning;
  std::size_t bytes = 0;
};

const char* meaning_of(Tag tag) {
  switch (tag) {
    case Tag::param:
      return "weights";
    case Tag::master:
      return "low halves of split weights";
    case Tag::grad:
      return "gradients";
    case Tag::optim:
      return "state of the optimizer";
    case Tag::activation:
      return "activations";
    case Tag::workspace:
      return "scratch of ops";
    case Tag::comm:
      return "buffers of collectives";
    default:
      return "batches";
  }
}

const Schema<TagRow>& tag_schema() {
  static const Schema<TagRow> kSchema = {
      {"tag", "tag", Unit::text, field<&TagRow::tag>, Where::table},
      {"meaning", "what", Unit::text, field<&TagRow::meaning>, Where::table},
      {"peak_bytes", "own peak MiB", Unit::mebibytes, field<&TagRow::bytes>, Where::table},
  };
  return kSchema;
}

// Peaks of parts are at their own moments; the step is the highest of all at once.
struct PolicyRow {
  Recompute recompute;
  std::size_t formula = 0, predicted = 0, activations = 0;
  double more_flops = 0;  // a share of the step without recomputation
};

Json bytes_or_none(std::size_t bytes) { return bytes == 0 ? Json() : Json(bytes); }

const Schema<PolicyRow>& policy_schema() {
  using R = PolicyRow;
  static const Schema<R> kSchema = {
      {"recompute", "recompute", Unit::text, [](const R& r) { return Json(name_of(r.recompute)); },
       Where::table},
      {"formula_bytes", "formula MiB", Unit::mebibytes, [](const R& r) { return bytes_or_none(r.formula); },
       Where::table},
      {"predicted_peak_bytes", "peak MiB", Unit::mebibytes, field<&R::predicted>, Where::table},
      {"activation_peak_bytes", "activations MiB", Unit::mebibytes, field<&R::activations>, Where::table},
      {"more_flops", "more operations", Unit::share, field<&R::more_flops>, Where::table},
  };
  return kSchema;
}

}  // namespace

MemoryTheory memory_theory(const StepTheoryRequest& q) {
  MemoryTheory theory;
  theory.request = q;
  const StepSpec spec = q.spec();
  RankOptions rank = q.rank();
  if (q.ranks == 1) {
    theory.peaks = plan_step(spec, rank).memory;
  } else {
    rank.world = q.ranks;
    const MemoryRequest request{.model = spec.model,
                                .layout = layout_for(q.precision, spec.step, q.ranks, q.strategy == "fsdp"),
                                .step = spec.step,
                                .strategy = q.strategy};
    theory.peaks = predict_memory(request, rank);
  }
  theory.state_bytes = state_bytes_per_parameter(policy_of(q.precision, q.micro_steps == 1 && q.ranks == 1));
  return theory;
}

StudyPage memory_theory_page(const MemoryTheory& theory, bool wide) {
  const StepTheoryRequest& q = theory.request;
  StudyPage page;
  page.place =
      fmt::format("{}, {}, batch {} of {} tokens, {}, preset {}, recompute {}, {}{}", q.model.name,
                  name_of(q.precision), q.batch, q.context, name_of(q.mode), q.preset, name_of(q.recompute),
                  q.ranks == 1 ? "one device" : fmt::format("a rank of {}, {}", q.ranks, q.strategy),
                  q.hardware.name.empty() ? "" : ", " + q.hardware.name);
  page.columns = tag_schema().forms();
  page.shown.wide = wide;
  for (int t = 0; t < kTagCount; ++t) {
    const Tag tag = static_cast<Tag>(t);
    if (theory.peaks.peak[tag] == 0) continue;
    page.rows.push_back(
        tag_schema().row({std::string(name_of(tag)), meaning_of(tag), theory.peaks.peak[tag]}));
  }
  const auto parameters = static_cast<double>(param_count(q.model));
  page.notes.push_back(fmt::format("Peak of the step: {} MiB, to the byte what the allocator will count.",
                                   fine_mib(static_cast<double>(theory.peaks.peak_total))));
  page.notes.push_back(fmt::format("State by the formula: {} bytes x {} parameters = {} MiB{}.",
                                   formula_number(theory.state_bytes), with_unit(parameters, ""),
                                   fine_mib(theory.state_bytes * parameters),
                                   q.ranks > 1 ? ", of all ranks together where it is sharded" : ""));
  const double capacity = q.hardware.memory;
  if (capacity > 0) {
    const bool fits = static_cast<double>(theory.peaks.peak_total) <= capacity;
    page.notes.push_back(fmt::format("{} has {}: it {}.", q.hardware.title, with_unit(capacity, "B"),
                                     fits ? "fits" : "does not fit"));
  }
  page.json = {{"command", "calc memory"},
               {"size", q.model.name},
               {"params", param_count(q.model)},
               {"precision", name_of(q.precision)},
               {"batch", q.batch},
               {"ctx", q.context},
               {"mode", name_of(q.mode)},
               {"preset", q.preset},
               {"recompute", name_of(q.recompute)},
               {"strategy", q.strategy},
               {"ranks", q.ranks},
               {"hw", q.hardware.name},
               {"peak_bytes", theory.peaks.peak_total},
               {"state_bytes_per_parameter", theory.state_bytes},
               {"rows", page.rows}};
  return page;
}

StudyPage checkpoint_page(const StepTheoryRequest& q, bool wide) {
  RecomputeSweepRequest request;
  request.spec = q.spec();
  request.rank = q.rank();
  for (int64_t k = 1; k <= q.model.config.layers; k *= 2) request.ks.push_back(k);
  const StepClock clock = q.clock();
  request.clock = &clock;
  const RecomputeSweep sweep = recompute_sweep(request);
  StudyPage page;
  page.place = fmt::format("activation checkpointing of {}, {} layers, {}, batch {} of {} tokens",
                           q.model.name, q.model.config.layers, name_of(q.precision), q.batch, q.context);
  page.columns = policy_schema().forms();
  page.shown.wide = wide;
  const double whole = sweep.points.front().flops;
  for (const SweepPoint& p : sweep.points)
    page.rows.push_back(policy_schema().row({p.recompute, p.formula, p.predicted.peak_total,
                                             p.predicted.peak[Tag::activation], p.flops / whole - 1}));
  page.notes.push_back(fmt::format("A block's input takes {} MiB, what it keeps for backward {} MiB.",
                                   fine_mib(static_cast<double>(sweep.stream)),
                                   fine_mib(static_cast<double>(sweep.block))));
  page.notes.push_back(
      "Formula of every:k on L layers: ceil(L / k) inputs + k blocks + what does not depend on k.");
  const SweepPoint& best = sweep.points[sweep.best];
  page.notes.push_back(fmt::format(
      "Least memory of every:k: {} with {} MiB and {:.1f} % more operations.", name_of(best.recompute),
      fine_mib(static_cast<double>(best.predicted.peak_total)), 100 * (best.flops / whole - 1)));
  page.json = {{"command", "calc checkpoint"},
               {"size", q.model.name},
               {"layers", q.model.config.layers},
               {"precision", name_of(q.precision)},
               {"batch", q.batch},
               {"ctx", q.context},
               {"input_bytes", sweep.stream},
               {"block_bytes", sweep.block},
               {"best", name_of(best.recompute)},
               {"rows", page.rows}};
  return page;
}

}  // namespace kiln
