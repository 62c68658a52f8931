#include <fmt/format.h>

#include <cmath>

#include "base/plain_number.h"
#include "rows/row_outcome.h"
#include "rows/row_values.h"
#include "studies/precision/float_format.h"
#include "studies/precision/render.h"

namespace kiln {
namespace {

constexpr Where kTable = Where::table;

double value(const Json& row, std::string_view key) { return row.at(key).get<double>(); }

std::string label_of(const RunningSumRow& r) {
  const std::string_view sum = name_of(r.accumulator), added = name_of(r.added);
  switch (r.method) {
    case SumMethod::plain:
      return fmt::format("{} += {}", sum, added);
    case SumMethod::converted:
      return fmt::format("{} += {}({})", sum, sum, added);
    case SumMethod::kahan:
      return fmt::format("{}, Kahan", sum);
    case SumMethod::stochastic:
      return fmt::format("{}, stochastic", sum);
  }
  return {};
}

std::string limit_text(const RunningSumRow& r, double value) {
  switch (r.limit) {
    case SumLimit::value:
      return fmt::format("{} as {}", plain(value, 6), name_of(r.added));
    case SumLimit::spacing:
      return fmt::format("spacing {}", plain(r.spacing, 3));
    case SumLimit::stalls:
      return fmt::format("stops at {}", plain(*r.stalls_at, 4));
    case SumLimit::chance:
      return fmt::format("scatter {}", plain(r.spread, 3));
    case SumLimit::range:
      return fmt::format("ends at {}", plain(format_of(r.accumulator).largest, 6));
  }
  return {};
}

struct Line {
  const RunningSumRequest& request;
  const RunningSumRow& of;
};

std::string predicted_text(const Json& row) {
  return with_error(value(row, "predicted"), value(row, "bound"));
}

Json binades_json(const Line& l) {
  Json binades = Json::array();
  for (const Binade& b : l.of.binades)
    binades.append({{"from", b.from}, {"spacing", b.spacing}, {"adds", b.adds}, {"additions", b.count}});
  return binades;
}

const Schema<Line>& schema() {
  using L = Line;
  using J = const Json&;
  constexpr Unit kNumber = Unit::number;
  static const Schema<L> kSchema = {
      same_outcome_columns<L, RowStatus::ok>(),
      {"label", "sum += added", Unit::text, [](const L& l) { return Json(label_of(l.of)); }, kTable},
      {"accumulator", "", Unit::text, [](const L& l) { return Json(name_of(l.of.accumulator)); }},
      {"added", "", Unit::text, [](const L& l) { return Json(name_of(l.of.added)); }},
      {"method", "", Unit::text, [](const L& l) { return Json(name_of(l.of.method)); }},
      {"increment", "", kNumber, [](const L& l) { return Json(l.of.increment); }},
      {"sum", "sum", kNumber, [](const L& l) { return Json(l.of.sum); }, kTable, "",
       [](J row) { return with_error(value(row, "sum"), 0); }},
      {"error", "error", kNumber, [](const L& l) { return Json(l.of.error); }, kTable, "",
       [](J row) {
         return fmt::format("{}{}", std::signbit(value(row, "error")) ? "" : "+",
                            plain(value(row, "error"), 3));
       }},
      {"floor", "floor", kNumber, [](const L& l) { return Json(l.of.floor); }, kTable, "",
       [](J row) { return plain(value(row, "floor"), 2); }},
      {"spacing", "", kNumber, [](const L& l) { return Json(l.of.spacing); }},
      {"limit", "", Unit::text, [](const L& l) { return Json(name_of(l.of.limit)); }},
      or_null<L>({"stalls_at", "", kNumber,
                  [](const L& l) { return l.of.stalls_at ? Json(*l.of.stalls_at) : Json(); }}),
      {"predicted", "predicted", kNumber, [](const L& l) { return Json(l.of.predicted); }, kTable, "",
       predicted_text},
      {"bound", "", kNumber, [](const L& l) { return Json(l.of.bound); }},
      {"runs", "", Unit::count, [](const L& l) { return Json(l.of.runs); }},
      {"spread", "", kNumber, [](const L& l) { return Json(l.of.spread); }},
      {"predicted_spread", "", kNumber, [](const L& l) { return Json(l.of.predicted_spread); }},
      {"limited_by", "limited by", kNumber,
       [](const L& l) { return Json(limit_text(l.of, l.request.value)); }, kTable},
      {"binades", "", Unit::text, binades_json},
  };
  return kSchema;
}

// What an addition adds while the sum is in each power of two: only where that is not the increment.
PageTable steps_table(const RunningSumReport& report) {
  using J = const Json&;
  static constexpr ColumnForm kColumns[] = {
      {"sum", "sum", Unit::text, kTable},
      {"from", "from", Unit::number, kTable, "", [](J r) { return plain(value(r, "from"), 6); }},
      {"to", "to", Unit::number, kTable, "", [](J r) { return plain(2 * value(r, "from"), 6); }},
      {"spacing", "spacing", Unit::number, kTable, "", [](J r) { return plain(value(r, "spacing"), 9); }},
      {"additions", "additions", Unit::count, kTable},
      {"adds", "each adds", Unit::number, kTable, "",
       [](J r) { return value(r, "adds") == 0 ? "nothing" : plain(value(r, "adds"), 9); }},
      {"increment", "in place of", Unit::number, kTable, "",
       [](J r) { return plain(value(r, "increment"), 9); }},
  };
  Json rows = Json::array();
  for (const RunningSumRow& r : report.rows) {
    if (r.method != SumMethod::plain || r.added != r.accumulator || r.added == DType::f32) continue;
    for (const Json& binade : binades_json({report.request, r})) {
      if (value(binade, "adds") == r.increment) continue;
      Json row = {{"sum", name_of(r.accumulator)}, {"increment", r.increment}};
      row.update(binade);
      rows.append(std::move(row));
    }
  }
  return page_table("Between two powers of two, every addition rounds alike", kColumns, rows);
}

}  // namespace

StudyPage running_sum_page(const RunningSumReport& report) {
  const RunningSumRequest& q = report.request;
  StudyPage page;
  page.place = fmt::format("{} added {} times in sequence; exact: {}", plain(q.value, 6), q.count,
                           plain(report.exact, 9));
  page.columns = schema().forms();
  for (const RunningSumRow& r : report.rows) page.rows.push_back(schema().row({q, r}));
  page.tables.push_back(steps_table(report));
  PageTable& words = page.tables.emplace_back();
  words.lines.push_back(fmt::format(
      "floor: the error of rounding {} to the added dtype. predicted: plain sums by a walk "
      "over the powers of two; Kahan's is the exact sum rounded once; the mean of stochastic rounding is the "
      "exact sum. Stochastic rows are the mean of {} runs; scatter is the deviation of one run.",
      plain(q.value, 6), q.runs));
  page.json = {{"command", "precision accumulate"},
               {"study", "accumulate"},
               {"count", q.count},
               {"value", q.value},
               {"seed", q.seed},
               {"exact", report.exact},
               {"rows", page.rows}};
  return page;
}

}  // namespace kiln
