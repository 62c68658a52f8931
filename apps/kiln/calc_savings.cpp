#include <fmt/format.h>

#include "kiln/bench_format.h"
#include "kiln/calc.h"
#include "kiln/calc_rows.h"
#include "kiln/study_tables.h"

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

SavingsReport calc_savings(const BenchZeroReport& planned, const CalcPlace& place, StoredRows stored) {
  SavingsReport report;
  report.planned = planned;
  const BenchZeroRequest& q = planned.request;
  const std::string device = device_of_rows(stored, place, "bench zero");
  for (const ZeroRow& r : planned.rows) {
    SavingsRow row;
    row.stage = r.stage;
    row.ranks = r.ranks;
    row.theory = r.theory;
    row.predicted_state = r.predicted_state();
    row.predicted_peak = static_cast<double>(r.planned.memory.after_step.peak_total);
    for (const json& s : stored) {  // the newest counts
      if (s.value("command", "") != "bench zero" || s.value("gate", "") != "passed" ||
          s.value("stage", "") != r.stage || s.value("ranks", 0) != r.ranks ||
          s.value("size", "") != q.size.name || s.value("params", int64_t{0}) != planned.parameters ||
          s.value("dtype", "") != name_of(q.precision) || s.value("ctx", int64_t{0}) != q.context ||
          s.value("batch", int64_t{0}) != q.batch * r.ranks || s.value("device", "") != device ||
          s.value("transport", "") != place.transport)
        continue;
      row.achieved_state = s.value("state_bytes", 0.0);
      row.achieved_peak = s.value("peak_bytes", 0.0);
    }
    report.rows.push_back(std::move(row));
  }
  return report;
}

std::string savings_page(const SavingsReport& report, PageFormat format) {
  const BenchZeroRequest& q = report.planned.request;
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
                 {"params", report.planned.parameters},
                 {"dtype", name_of(q.precision)},
                 {"batch_of_a_rank", q.batch},
                 {"ctx", q.context},
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
      remark(
          fmt::format("{}, {:.4g} million parameters, {}, batch {} of {} tokens on each rank; MiB of a rank.",
                      q.size.name, static_cast<double>(report.planned.parameters) / 1e6, name_of(q.precision),
                      q.batch, q.context),
          format) +
      written(table, 1, format);
  text += remark(
      "floor: the formula, P parameters in even shares, without the buffers weights are gathered into; "
      "predicted: "
      "the same step on meta; peak: activations and those buffers with it.",
      format);
  bool any = false;
  for (const SavingsRow& r : report.rows) any = any || r.achieved_state;
  if (!any)
    text += remark("achieved: `kiln bench zero --stage 0,1,3` with the same options stores it.", format);
  return text;
}

}  // namespace kiln::cli
