#include "kiln/ablate.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/build_info.h"
#include "base/error.h"
#include "kiln/ablate_row.h"
#include "kiln/sweep.h"
#include "report/result_table.h"

namespace kiln::cli {
namespace {

using nlohmann::json;

// 16 hexadecimal digits of all that decides the study's figures.
std::string study_id(const AblateRequest& r, const MeasuredPlace& place) {
  SweepRequest study;
  study.command = "ablate";
  study.place = fmt::format("{}\n{}\n{}", r.device.str(), place.name, build_info().build_id);
  study.words = {fmt::format("size={}", r.size.name),
                 fmt::format("vocab={}", r.size.vocab),
                 fmt::format("batch={}", r.batch),
                 fmt::format("ctx={}", r.context),
                 fmt::format("warmup={}", r.warmups),
                 fmt::format("steps={}", r.steps),
                 fmt::format("gate={}", r.gate_steps),
                 fmt::format("tolerance={}", r.tolerance),
                 fmt::format("threads={}", place.threads),
                 fmt::format("seed={}", r.seed),
                 fmt::format("only={}", fmt::join(r.only, ","))};
  return cell_id(study, {});
}

// The latest of its place; a failure is worth another try, and there may be more memory by now.
const json* find_row(const std::vector<json>& rows, const std::string& study, const PlannedRow& planned) {
  const auto found = std::find_if(rows.rbegin(), rows.rend(), [&](const json& row) {
    return word_at(row, "study") == study && word_at(row, "group") == planned.group &&
           word_at(row, "switch") == planned.name;
  });
  if (found == rows.rend()) return nullptr;
  const std::string gate = word_at(*found, "gate");
  return gate == "failed" || gate == "no memory" ? nullptr : &*found;
}

// The first that is added up is the first by itself.
const json* same_alone(const std::vector<json>& rows, const PlannedRow& planned) {
  if (planned.group != "added" || !planned.cannot.empty() || planned.on.size() != 1) return nullptr;
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const json& row) {
    return word_at(row, "group") == "alone" && word_at(row, "switch") == planned.name;
  });
  return found == rows.end() ? nullptr : &*found;
}

// Of the same group, or the baseline: all switches but the row's own.
const PlannedRow* row_before(const std::vector<PlannedRow>& plan, std::size_t at) {
  const PlannedRow& row = plan[at];
  if (row.group == "alone") return &plan.front();
  if (row.group != "added") return nullptr;
  for (std::size_t i = at; i-- > 0;) {
    if (plan[i].group == "added" && plan[i].cannot.empty()) return &plan[i];
    if (plan[i].group == "alone") break;
  }
  return &plan.front();
}

// The better of two: rows are put beside their ceilings as soon as they are done, so these come first, and
// one moment in which the machine did something else would spoil all of them.
MeasuredPlace measure_twice(const AblateRequest& r) {
  const std::vector<DType> dtypes = {DType::f32, DType::bf16};
  MeasuredPlace best = measure_place(r.device, r.threads, dtypes);
  const MeasuredPlace other = measure_place(r.device, r.threads, dtypes);
  best.ceilings.copy = std::max(best.ceilings.copy, other.ceilings.copy);
  for (auto& [dtype, rate] : best.ceilings.flops)
    rate = std::max(rate, other.ceilings.flops.at(dtype),
                    [](const NamedRate& a, const NamedRate& b) { return a.per_second < b.per_second; });
  return best;
}

MeasuredPlace measure_here(const AblateRequest& r, AblateReport& report) {
  MeasuredPlace place = measure_twice(r);
  report.device = r.device.str();
  report.device_name = place.name;
  report.isa = place.isa;
  report.threads = place.threads;
  report.copy = place.ceilings.copy;
  for (const auto& [dtype, rate] : place.ceilings.flops)
    report.flops.push_back({cat(name_of(dtype), " ", rate.name), rate.per_second});
  return place;
}

}  // namespace

std::vector<PlannedRow> ablation_plan(const std::vector<std::string_view>& only, const Device& device) {
  std::vector<PlannedRow> plan = {{"baseline", "", {}, ""}};
  std::size_t possible = 0;
  for (const std::string_view name : only) {
    const std::string cannot = why_not_on(find_ablation_switch("--only", name), device);
    plan.push_back({"alone", std::string(name), {name}, cannot});
    possible += cannot.empty() ? 1 : 0;
  }
  std::vector<std::string_view> on;
  for (std::size_t i = 1; possible > 1 && i <= only.size(); ++i) {
    PlannedRow row = plan[i];
    row.group = "added";
    if (row.cannot.empty()) on.push_back(only[i - 1]);
    row.on = on;
    plan.push_back(std::move(row));
  }
  plan.push_back({"again", "", {}, ""});
  return plan;
}

void check_ablate(const AblateRequest& r) {
  if (r.device.is_meta())
    throw Error("meta runs no kernels, so there is nothing to judge or time", "use --device cpu or cuda",
                ErrorKind::usage);
  check_config(config_of(r.size));
}

AblateReport ablate(const AblateRequest& r, const std::vector<json>& stored,
                    const std::function<void(const std::string&)>& progress,
                    const std::function<void(const std::string& line)>& store) {
  AblateReport report;
  progress("measuring ceilings");
  AblationRows rows(r, measure_here(r, report));
  const std::string study = study_id(r, rows.place());
  const std::vector<PlannedRow> plan = ablation_plan(r.only, r.device);
  report.planned = plan.size();
  std::size_t reused = 0;
  for (std::size_t at = 0; at < plan.size(); ++at) {
    const PlannedRow& planned = plan[at];
    if (const json* row = r.fresh ? nullptr : find_row(stored, study, planned)) {
      report.rows.push_back(*row);
      ++reused;
      continue;
    }
    if (r.stop && r.stop()) break;
    progress(fmt::format("row {} of {}: {} {}", at + 1, plan.size(), planned.group, planned.name));
    json row;
    if (const json* alone = same_alone(report.rows, planned)) {
      row = *alone;
      row["group"] = planned.group;
    } else {
      const std::optional<std::string> line = rows.measure(planned, row_before(plan, at));
      if (!line) break;
      row = json::parse(*line);
      row["study"] = study;
    }
    store(row.dump(-1, ' ', false, json::error_handler_t::replace));
    report.rows.push_back(std::move(row));
  }
  progress("");
  if (reused > 0)
    report.remarks.push_back(
        fmt::format("{} of {} rows were measured before and are taken from {}; --fresh measures them again",
                    reused, plan.size(), r.out));
  if (report.stopped())
    report.remarks.push_back(
        fmt::format("stopped with {} of {} rows not measured; the same command goes on from there",
                    plan.size() - report.rows.size(), plan.size()));
  return report;
}

}  // namespace kiln::cli
