#include "studies/ablation/ablation.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/build_info.h"
#include "base/error.h"
#include "base/json.h"
#include "rows/row_status.h"
#include "rows/row_values.h"
#include "studies/ablation/ablation_ranks.h"
#include "studies/ablation/ablation_row.h"
#include "studies/ablation/ablation_switches.h"
#include "studies/sweep/sweep.h"

namespace kiln {
namespace {

// 16 hexadecimal digits of all that decides the study's figures.
std::string study_id(const AblateRequest& r, const MeasuredPlace& place) {
  SweepRequest study;
  study.command = "ablate";
  study.place = fmt::format("{}\n{}\n{}", r.device.str(), place.name, build_info().build_id);
  const ModelConfig& m = r.size.config;
  study.args = {
      fmt::format("size={}", r.size.name),
      fmt::format("shape={},{},{},{},{},{}", m.layers, m.d_model, m.d_ff, m.heads, m.kv_heads, m.tied),
      fmt::format("vocab={}", r.size.config.vocab),
      fmt::format("batch={}", r.batch),
      fmt::format("ctx={}", r.context),
      fmt::format("warmup={}", r.warmups),
      fmt::format("steps={}", r.steps),
      fmt::format("gate={}", r.gate_steps),
      fmt::format("tolerance={}", r.tolerance),
      fmt::format("threads={}", place.threads),
      fmt::format("seed={}", r.seed),
      fmt::format("only={}", fmt::join(r.only, ","))};
  // One is left out, so that rows of before the option are found.
  if (r.base != Precision::fp32) study.args.push_back(fmt::format("base={}", name_of(r.base)));
  if (r.micro_steps > 1) study.args.push_back(fmt::format("grad-accum={}", r.micro_steps));
  return cell_id(study, {});
}

// The latest of its place, with the same switches on.
const Json* latest_of(const std::vector<Json>& rows, const std::string& study, const PlannedRow& planned) {
  const auto found = std::find_if(rows.rbegin(), rows.rend(), [&](const Json& row) {
    return text_at(row, "study") == study && text_at(row, "group") == planned.group &&
           text_at(row, "switch") == planned.name && row.value("switches", Json()) == Json(planned.on);
  });
  return found == rows.rend() ? nullptr : &*found;
}

// One that need not be measured again. A failure is worth another try, and there may be more memory by now;
// rows predicted from other ceilings are not compared.
const Json* find_row(const std::vector<Json>& rows, const std::string& study, const PlannedRow& planned,
                     const Json& ceilings) {
  const Json* row = latest_of(rows, study, planned);
  if (row == nullptr || row->value("ceilings", Json()) != ceilings) return nullptr;
  const RowStatus status = status_of(*row);
  return status == RowStatus::failed || status == RowStatus::oom ? nullptr : row;
}

// Of an `added` row: what became of the switch by itself.
const Json& row_alone(const std::vector<Json>& rows, const PlannedRow& planned) {
  return *std::find_if(rows.begin(), rows.end(), [&](const Json& row) {
    return text_at(row, "group") == "alone" && text_at(row, "switch") == planned.name;
  });
}

// What cannot be, does nothing or computes something else by itself is not added to the others. One that
// runs out of memory may fit without them.
bool can_be_added(const Json& alone) { return counts(alone) || status_of(alone) == RowStatus::oom; }

// An `added` row that is not measured: the same work as the switch by itself, or not added for the same
// reason; then nothing was planned with the others on either.
Json copy_of(const Json& alone, bool added) {
  Json row = alone;
  row["group"] = "added";
  if (added) return row;
  for (const char* key : {"predicted_peak_bytes", "predicted_peak_by_tag", "floor_bytes"}) row.erase(key);
  return row;
}

// All that are on together, but for the row's own. False where it is none of them, or nothing else is.
bool take_away(PlannedRow& planned, const PlannedRow& all) {
  planned.on = planned.against = all.on;
  return std::erase(planned.on, planned.name) > 0 && !planned.on.empty();
}

// Without a baseline there is nothing to compare with.
void check_baseline(const Json& row) {
  if (!counts(row))
    throw Error(fmt::format("the baseline could not be timed: {}", text_at(row, "reason")),
                "take a smaller --size, --batch or --ctx");
}

// The better of two: rows are compared with their ceilings as soon as they are done, so these come first, and
// one moment in which the machine did something else would spoil all of them.
Ceilings measure_twice(const AblateRequest& r) {
  const std::vector<DType> dtypes(kAblationDTypes.begin(), kAblationDTypes.end());
  Ceilings best = measure_place(r.device, r.threads, dtypes).ceilings;
  const Ceilings other = measure_place(r.device, r.threads, dtypes).ceilings;
  best.copy = std::max(best.copy, other.copy);
  for (auto& [dtype, rate] : best.flops)
    rate = std::max(rate, other.flops.at(dtype),
                    [](const NamedRate& a, const NamedRate& b) { return a.per_second < b.per_second; });
  return best;
}

void note(const MeasuredPlace& place, const AblateRequest& r, AblateReport& report) {
  report.device = r.device.str();
  report.device_name = place.name;
  report.isa = place.isa;
  report.threads = place.threads;
  report.copy = place.ceilings.copy;
  for (const auto& [dtype, rate] : place.ceilings.flops)
    report.flops.push_back({cat(name_of(dtype), " ", rate.name), rate.per_second});
}

}  // namespace

std::vector<PlannedRow> ablation_plan(const std::vector<std::string_view>& only, const Device& device) {
  std::vector<PlannedRow> plan = {{"baseline", "", {}, ""}};
  std::size_t possible = 0;
  for (const std::string_view name : only) {
    if (name == kRankSwitch) continue;  // of several ranks: it has rows of its own
    const std::string cannot = why_not_on(find_ablation_switch("--only", name), device);
    plan.push_back({"alone", std::string(name), {name}, cannot});
    possible += cannot.empty() ? 1 : 0;
  }
  const std::size_t switches = plan.size();
  for (const char* group : {"added", "without"})
    for (std::size_t i = 1; possible > 1 && i < switches; ++i) {
      // It stands in place of the fused ops, not on top of them; recomputed, no check knows its kernels yet.
      if (plan[i].name != kCompileSwitch) plan.push_back({group, plan[i].name, {}, plan[i].cannot});
    }
  if (std::find(only.begin(), only.end(), kRankSwitch) != only.end()) {
    plan.push_back({"ranks", std::string(kRankSwitch), {kRankSwitch}, ""});
    if (possible > 1) plan.push_back({"ranks", "+" + std::string(kRankSwitch), only, ""});
  }
  plan.push_back({"again", "", {}, ""});
  return plan;
}

void check_ablate(const AblateRequest& r) {
  if (r.device.is_meta())
    throw Error("meta runs no kernels, so there is nothing to check or time", "use --device cpu or cuda",
                ErrorKind::usage);
  if (r.base != Precision::fp32 && std::find(r.only.begin(), r.only.end(), "bf16") != r.only.end())
    throw Error(fmt::format("--only has bf16, which --base {} has already", name_of(r.base)), {},
                ErrorKind::usage);
  check_config(config_of(r.size));
}

AblateReport ablate(const AblateRequest& r, const std::vector<Json>& stored,
                    const std::function<void(const std::string&)>& progress,
                    const std::function<void(const std::string& line)>& store) {
  AblateReport report;
  const LoadWatch load(r.device);
  const std::vector<PlannedRow> plan = ablation_plan(r.only, r.device);
  MeasuredPlace place = find_place(r.device, r.threads);
  const std::string study = study_id(r, place);
  const Json* first = r.fresh ? nullptr : latest_of(stored, study, plan.front());
  const std::optional<Ceilings> known = first == nullptr ? std::nullopt : stored_ceilings(*first);
  report.ceilings_stored = known.has_value();
  if (!known) progress("measuring ceilings");
  place.ceilings = known ? *known : measure_twice(r);
  note(place, r, report);
  const Json ceilings = ceilings_row(place.ceilings);
  AblationRows rows(r, std::move(place), progress);
  report.planned = plan.size();
  std::size_t reused = 0;
  PlannedRow sum = plan.front();  // the last of the `added` rows, or the baseline
  for (std::size_t at = 0; at < plan.size(); ++at) {
    PlannedRow planned = plan[at];
    const PlannedRow before = planned.group == "added" || planned.group == "without" ? sum : plan.front();
    if (planned.group == "without" && !take_away(planned, sum)) {
      --report.planned;  // it is not among all of them
      continue;
    }
    const Json* alone = planned.group == "added" ? &row_alone(report.rows, planned) : nullptr;
    const bool added = alone != nullptr && can_be_added(*alone);
    if (added) {
      planned.on = sum.on;
      planned.on.push_back(find_ablation_switch("--only", planned.name).name);
      sum = planned;
    }
    const bool copied = alone != nullptr && (!added || planned.on.size() == 1);
    Json row = copied ? copy_of(*alone, added) : Json();
    const bool kept = copied && !r.fresh && std::find(stored.begin(), stored.end(), row) != stored.end();
    const Json* known_row = r.fresh || copied ? nullptr : find_row(stored, study, planned, ceilings);
    if (kept || known_row != nullptr) {
      report.rows.push_back(kept ? row : *known_row);
      ++reused;
      continue;
    }
    if (r.stop && r.stop()) break;
    progress(fmt::format("row {} of {}: {} {}", at + 1, plan.size(), planned.group, planned.name));
    if (planned.group == "ranks") {
      std::optional<Json> of_ranks = measure_on_ranks(r, planned, rows.place(), progress);
      if (!of_ranks) break;
      row = std::move(*of_ranks);
      row["study"] = study;
    } else if (!copied) {
      const std::optional<std::string> line = rows.measure(planned, planned.on.empty() ? nullptr : &before);
      if (!line) break;
      row = Json::parse(*line);
      row["study"] = study;
    }
    if (at == 0) check_baseline(row);
    store(row.dump());
    report.rows.push_back(std::move(row));
  }
  progress("");
  report.load = load.load();
  if (reused > 0)
    report.notes.push_back(
        fmt::format("{} of {} rows were measured before and are taken from {}; --fresh measures them again",
                    reused, report.planned, r.out));
  if (report.stopped())
    report.notes.push_back(
        fmt::format("stopped with {} of {} rows not measured; the same command resumes there",
                    report.planned - report.rows.size(), report.planned));
  return report;
}

}  // namespace kiln
