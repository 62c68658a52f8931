#include <fmt/format.h>

#include <algorithm>

#include "base/plain_number.h"
#include "rows/row_outcome.h"
#include "studies/calc/calc.h"
#include "studies/calc/stored.h"
#include "studies/format.h"
#include "studies/ranks/zero.h"
#include "train/memory_prediction.h"
#include "train/step.h"

namespace kiln {
namespace {

// A row with the report it is of.
struct Line {
  const SavingsReport& report;
  const SavingsRow& row;
};
using In = const Line&;

// Of everything that is kept between steps, against the first stage of as many ranks.
double saved(const SavingsReport& report, const SavingsRow& row) {
  for (const SavingsRow& whole : report.rows) {
    if (whole.ranks == row.ranks && whole.stage == "0") return 1 - row.theory.state() / whole.theory.state();
  }
  return 0;
}

std::string kept(const Json& row) {
  const std::string stage = text_at(row, "stage");
  if (stage == "0") return "all whole";
  return stage == "1" ? "moments 1/N (ZeRO-1)" : "all 1/N (FSDP)";
}

Json known(std::optional<double> bytes) { return bytes ? Json(*bytes) : Json(); }

const Schema<Line>& schema() {
  static const Schema<Line> kSchema = {
      same_outcome_columns<Line, RowStatus::modelled>(),
      {"stage", "a rank keeps", Unit::text, [](In l) { return Json(l.row.stage); }, Where::table, "", kept},
      {"ranks", "ranks", Unit::count, [](In l) { return Json(l.row.ranks); }, Where::table},
      {"weights_bytes", "weights MiB", Unit::bytes,
       [](In l) { return Json(l.row.theory.weights + l.row.theory.low); }, Where::table},
      {"grads_bytes", "grads", Unit::bytes, [](In l) { return Json(l.row.theory.grads); }, Where::table},
      {"moments_bytes", "moments", Unit::bytes, [](In l) { return Json(l.row.theory.moments); },
       Where::table},
      {"state_bytes", "achieved", Unit::bytes, [](In l) { return known(l.row.achieved_state); },
       Where::table},
      {"predicted_state_bytes", "predicted", Unit::bytes, [](In l) { return Json(l.row.predicted_state); },
       Where::table},
      {"theory_state_bytes", "floor", Unit::bytes, [](In l) { return Json(l.row.theory.state()); },
       Where::table},
      {"saved", "saved", Unit::percent, [](In l) { return Json(saved(l.report, l.row)); }, Where::table},
      {"peak_bytes", "peak achieved", Unit::bytes, [](In l) { return known(l.row.achieved_peak); },
       Where::table},
      {"predicted_peak_bytes", "peak predicted", Unit::bytes, [](In l) { return Json(l.row.predicted_peak); },
       Where::table},
  };
  return kSchema;
}

}  // namespace

SavingsReport calc_savings(const SavingsRequest& request, StoredRows stored) {
  SavingsReport report;
  report.request = request;
  SavingsRequest& q = report.request;
  RanksStudy& study = q.study;
  report.parameters = count_params(config_of(study.size)).total();
  const auto fits = [&](const Json& r, int ranks) {
    return is_row_of(r, "bench zero", q.place.transport, ranks) && text_at(r, "size") == study.size.name &&
           number_at(r, "params") == static_cast<double>(report.parameters) &&
           text_at(r, "dtype") == name_of(study.precision) &&
           number_at(r, "ctx") == static_cast<double>(study.context) && !number_at(r, "micro_steps") &&
           number_at(r, "batch") == static_cast<double>(batch_of_rank(study, ranks) * ranks);
  };
  q.place.device = device_of_rows(stored, q.place, [&](const Json& r) {
    return std::any_of(q.ranks.begin(), q.ranks.end(), [&](int ranks) { return fits(r, ranks); });
  });
  study.device = Device::parse(q.place.device.starts_with("cuda") ? "meta:cuda" : "meta");
  for (const int ranks : q.ranks) {
    const RanksWork work = work_of(study, ranks, batch_of_rank(study, ranks));
    const bool narrow = layout_for(study.precision, work.spec.step, ranks).narrow_grads;
    for (const char* stage : {"0", "1", "3"}) {
      const RanksTiming planned = plan_ranks(work, strategy_maker(strategy_of_stage(stage), {}));
      SavingsRow row;
      row.stage = stage;
      row.ranks = ranks;
      row.theory = zero_theory(stage, policy_of(study.precision, narrow), report.parameters, ranks);
      row.predicted_state = ZeroRow::state_of(planned.memory.after_step);
      row.predicted_peak = static_cast<double>(planned.memory.after_step.peak_total);
      for (const Json& r : stored) {  // the newest counts
        if (!fits(r, ranks) || text_at(r, "stage") != stage || text_at(r, "device") != q.place.device)
          continue;
        row.achieved_state = number_at(r, "state_bytes");
        row.achieved_peak = number_at(r, "peak_bytes");
      }
      report.rows.push_back(std::move(row));
    }
  }
  return report;
}

StudyPage savings_page(const SavingsReport& report, bool wide) {
  const CalcPlace& place = report.request.place;
  const RanksStudy& q = report.request.study;
  StudyPage page;
  page.place = fmt::format("{}, {} million parameters, {}, {}, ctx {}, {}; MiB of a rank", q.size.name,
                           plain(static_cast<double>(report.parameters) / 1e6, 4), name_of(q.precision),
                           batch_text(q), q.context, place.device);
  page.columns = schema().forms();
  page.shown.wide = wide;
  bool any = false;
  for (const SavingsRow& r : report.rows) {
    page.rows.push_back(schema().row({report, r}));
    any = any || r.achieved_state;
  }
  page.notes = {
      "floor: the formula, P parameters in even shares, without gather buffers; "
      "predicted: the same step on meta; peak: with activations and those buffers"};
  if (!any)
    page.notes.push_back(
        fmt::format("achieved: {} has no row of bench zero with these options", place.folder));
  page.json = {{"command", "calc fsdp-savings"},
               {"size", q.size.name},
               {"params", report.parameters},
               {"dtype", name_of(q.precision)},
               {"batch_of_a_rank", q.total_batch ? Json() : Json(q.batch)},
               {"batch", q.total_batch ? Json(*q.total_batch) : Json()},
               {"ctx", q.context},
               {"transport", place.transport},
               {"device", place.device},
               {"rows", page.rows}};
  return page;
}

}  // namespace kiln
