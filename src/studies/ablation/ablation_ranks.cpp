#include "studies/ablation/ablation_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "device/out_of_memory.h"
#include "rows/row_outcome.h"
#include "studies/ablation/ablation_row.h"
#include "studies/format.h"
#include "studies/ranks/rank_steps.h"

namespace kiln {
namespace {

constexpr const char* kNaive = "ddp:naive";
constexpr const char* kFsdp = "fsdp";

RanksStudy study_of(const AblateRequest& r, bool all) {
  const bool narrow = all && std::find(r.only.begin(), r.only.end(), "bf16") != r.only.end();
  RanksStudy s;
  s.size = r.size;
  s.precision = narrow ? Precision::bf16 : r.base;
  s.preset = all ? "optimized" : "baseline";
  s.batch = r.batch;
  s.context = r.context;
  s.micro_steps = r.micro_steps;
  s.warmups = std::max(r.warmups, 1);
  s.steps = r.steps;
  s.device = r.device;
  s.threads = r.threads;
  s.seed = r.seed;
  s.folder = r.out;
  s.stop = r.stop;
  return s;
}

struct Pair : RowOutcome {
  RanksTiming naive, fsdp;
  bool stopped = false;
};

// In two rounds, so that a machine that slows down slows both.
Pair time_pair(const AblateRequest& r, RanksWork work,
               const std::function<void(const std::string&)>& progress) {
  Pair pair;
  const int rounds = std::min(2, r.steps);
  for (int round = 0; round < rounds; ++round) {
    work.steps = r.steps / rounds + (round < r.steps % rounds ? 1 : 0);
    for (const char* name : {kNaive, kFsdp}) {
      pair.stopped = pair.stopped || (r.stop && r.stop());
      if (pair.stopped) return pair;
      progress(fmt::format("{} on {} ranks, round {} of {}", name, work.plan.ranks, round + 1, rounds));
      add_round(name == kFsdp ? pair.fsdp : pair.naive, time_ranks(work, strategy_maker(name, {})));
    }
  }
  pair.stopped = r.stop && r.stop();
  RowOutcome of_naive;
  if (!pair.stopped) compare_losses({pair, pair.fsdp}, {of_naive, pair.naive}, kNaive);
  return pair;
}

Json samples_ms(const Timing& timing) {
  Json all = Json::array();
  for (const double s : timing.samples) all.push_back(std::round(ms(s) * 1e6) / 1e6);
  return all;
}

Json row_json(const AblateRequest& r, const PlannedRow& planned, const RanksStudy& study) {
  return {{"ranks", kAblationRanks},
          {"link", "none"},
          {"transport", study.transport},
          {"strategy", kFsdp},
          {"against", kNaive},
          {"group", planned.group},
          {"switch", planned.name},
          {"switches", planned.on},
          {"size", r.size.name},
          {"mode", "full"},
          {"device", r.device.str()},
          {"dtype", name_of(study.precision)},
          {"base", name_of(r.base)},
          {"preset", study.preset},
          {"batch", r.batch},
          {"micro_steps", r.micro_steps},
          {"ctx", r.context},
          {"vocab", config_of(r.size).vocab}};
}

void add_figures(Json& row, const AblateRequest& r, const Pair& pair) {
  const MemoryStats& own = pair.fsdp.memory.after_step;
  row["tokens_per_step"] = r.batch * r.context * r.micro_steps * kAblationRanks;
  row["tokens_per_s"] =
      static_cast<double>(r.batch * r.context * r.micro_steps * kAblationRanks) / pair.fsdp.timing.p50;
  row["baseline_ms"] = ms(pair.naive.timing.p50);
  row["baseline_samples"] = samples_ms(pair.naive.timing);
  row["peak_bytes"] = own.peak_total;
  row["peak_by_tag"] = tags_json(own.peak);
  row["baseline_peak_bytes"] = pair.naive.memory.after_step.peak_total;
  row["last_loss"] = pair.fsdp.loss;
}

}  // namespace

std::optional<Json> measure_on_ranks(const AblateRequest& r, const PlannedRow& planned,
                                     const MeasuredPlace& place,
                                     const std::function<void(const std::string&)>& progress) {
  const RanksStudy study = study_of(r, planned.on.size() > 1);
  Pair pair;
  Json row = row_json(r, planned, study);
  try {
    const RanksWork work = work_of(study, kAblationRanks, r.batch);
    check_ranks_fit(work, strategy_maker(kNaive, {}));
    check_rank_step(work, study.folder, progress);
    pair = time_pair(r, work, progress);
    if (pair.stopped) return std::nullopt;
  } catch (const Stopped&) {
    return std::nullopt;
  } catch (const Error& error) {
    pair.set(status_of(error.kind()), error.what());
  }
  const bool timed = pair.ok() && !pair.fsdp.timing.samples.empty();
  row.update(outcome_json(pair));
  if (timed) {
    row.update(timing_json(pair.fsdp.timing));
    add_figures(row, r, pair);
  }
  row["ceilings"] = ceilings_row(place.ceilings);
  return Json::parse(
      result_line("ablate", row, timed ? pair.fsdp.timing : Timing{},
                  {{"device_name", place.name}, {"isa", place.isa}, {"threads", place.threads}}));
}

}  // namespace kiln
