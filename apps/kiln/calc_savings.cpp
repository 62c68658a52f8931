#include <fmt/format.h>

#include <algorithm>

#include "studies/format.h"
#include "studies/ranks/zero.h"
#include "studies/calc/calc.h"
#include "kiln/calc_rows.h"
#include "kiln/study_tables.h"
#include "train/memory_prediction.h"
#include "train/step.h"

namespace kiln::cli {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string mib(std::optional<double> bytes) { return bytes ? fine_mib(*bytes) : "-"; }

// Of everything that is kept between steps, against the first stage of as many ranks.
double saved(const SavingsReport& report, const SavingsRow& row) {
  for (const SavingsRow& whole : report.rows) {
    if (whole.ranks == row.ranks && whole.stage == "0") return 1 - row.theory.state() / whole.theory.state();
  }
  return 0;
}

const char* kept(const std::string& stage) {
  if (stage == "0") return "all whole";
  return stage == "1" ? "moments 1/N (ZeRO-1)" : "all 1/N (FSDP)";
}

}  // namespace

SavingsReport calc_savings(const SavingsRequest& request, StoredRows stored) {
  SavingsReport report;
  report.request = request;
  SavingsRequest& q = report.request;
  RanksStudy& study = q.study;
  report.parameters = count_params(config_of(study.size)).total();
  const auto fits = [&](const json& r, int ranks) {
    return is_row_of(r, "bench zero", q.place.transport, ranks) && word_at(r, "size") == study.size.name &&
           number_at(r, "params") == static_cast<double>(report.parameters) &&
           word_at(r, "dtype") == name_of(study.precision) &&
           number_at(r, "ctx") == static_cast<double>(study.context) &&
           number_at(r, "batch") == static_cast<double>(study.batch * ranks);
  };
  q.place.device = device_of_rows(stored, q.place, [&](const json& r) {
    return std::any_of(q.ranks.begin(), q.ranks.end(), [&](int ranks) { return fits(r, ranks); });
  });
  study.device = Device::parse(q.place.device.starts_with("cuda") ? "meta:cuda" : "meta");
  for (const int ranks : q.ranks) {
    const RanksWork work = work_of(study, ranks, study.batch);
    const bool narrow = layout_for(study.precision, work.spec.step, ranks).narrow_grads;
    for (const char* stage : {"0", "1", "3"}) {
      const RanksTiming planned = plan_ranks(work, strategy_maker(strategy_of_stage(stage), {}));
      SavingsRow row;
      row.stage = stage;
      row.ranks = ranks;
      row.theory = zero_theory(stage, policy_of(study.precision, narrow), report.parameters, ranks);
      row.predicted_state = ZeroRow::state_of(planned.memory.after_step);
      row.predicted_peak = static_cast<double>(planned.memory.after_step.peak_total);
      for (const json& r : stored) {  // the newest counts
        if (!fits(r, ranks) || word_at(r, "stage") != stage || word_at(r, "device") != q.place.device)
          continue;
        row.achieved_state = number_at(r, "state_bytes");
        row.achieved_peak = number_at(r, "peak_bytes");
      }
      report.rows.push_back(std::move(row));
    }
  }
  return report;
}

std::string savings_page(const SavingsReport& report, PageFormat format) {
  const RanksStudy& q = report.request.study;
  if (format == PageFormat::json) {
    ordered_json rows = ordered_json::array();
    for (const SavingsRow& r : report.rows) {
      ordered_json row = {{"stage", r.stage},
                          {"ranks", r.ranks},
                          {"weights_bytes", r.theory.weights + r.theory.low},
                          {"grads_bytes", r.theory.grads},
                          {"moments_bytes", r.theory.moments},
                          {"theory_state_bytes", r.theory.state()},
                          {"saved", saved(report, r)},
                          {"predicted_state_bytes", r.predicted_state},
                          {"predicted_peak_bytes", r.predicted_peak}};
      if (r.achieved_state) row["state_bytes"] = *r.achieved_state;
      if (r.achieved_peak) row["peak_bytes"] = *r.achieved_peak;
      rows.push_back(std::move(row));
    }
    return dump({{"command", "calc fsdp-savings"},
                 {"size", q.size.name},
                 {"params", report.parameters},
                 {"dtype", name_of(q.precision)},
                 {"batch_of_a_rank", q.batch},
                 {"ctx", q.context},
                 {"transport", report.request.place.transport},
                 {"device", report.request.place.device},
                 {"rows", rows}},
                2) +
           "\n";
  }
  TextTable table = {{"a rank keeps", "ranks", "weights MiB", "grads", "moments", "achieved", "predicted",
                      "floor", "saved", "peak achieved", "peak predicted"}};
  for (const SavingsRow& r : report.rows)
    table.push_back(
        {kept(r.stage), fmt::format("{}", r.ranks), mib(r.theory.weights + r.theory.low), mib(r.theory.grads),
         mib(r.theory.moments), mib(r.achieved_state), mib(r.predicted_state), mib(r.theory.state()),
         fmt::format("{:.0f} %", 100 * saved(report, r)), mib(r.achieved_peak), mib(r.predicted_peak)});
  if (format == PageFormat::csv) return written(table, 1, format);
  std::string text =
      remark(fmt::format(
                 "{}, {:.4g} million parameters, {}, batch {} of {} tokens on each rank, {}; MiB of a rank",
                 q.size.name, static_cast<double>(report.parameters) / 1e6, name_of(q.precision), q.batch,
                 q.context, report.request.place.device),
             format) +
      written(table, 1, format);
  text += remark(
      "floor: the formula, P parameters in even shares, without the buffers weights are gathered into; "
      "predicted: "
      "the same step on meta; peak: activations and those buffers with it",
      format);
  bool any = false;
  for (const SavingsRow& r : report.rows) any = any || r.achieved_state;
  if (!any)
    text += remark(
        fmt::format("achieved: {} has no row of bench zero with these options", report.request.place.folder),
        format);
  return text;
}

}  // namespace kiln::cli
