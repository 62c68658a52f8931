#include "studies/compare/render.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "base/plain_number.h"
#include "rows/row_values.h"
#include "studies/compare/notes.h"
#include "studies/format.h"
#include "studies/step/render.h"

namespace kiln {
namespace {

template <const char* kKey>
std::string prefixed(const Json& row) {
  const auto value = number_at(row, kKey);
  return value ? prefixed_figure(*value) : "-";
}
constexpr char kFlops[] = "flops", kBytes[] = "bytes";

template <auto kMember>
Json gap_ms(const ComparedOp& op) {
  return Json(std::invoke(kMember, op.gap));
}

Json of_calls(const ComparedOp& op, double value) { return op.calls > 0 ? Json(value) : Json(); }

const Schema<ComparedOp>& op_schema() {
  using Op = ComparedOp;
  constexpr Unit kMs = Unit::milliseconds;
  static const Schema<Op> kSchema = {
      {"op", "op", Unit::text, field<&Op::op>, Where::table},
      {"variant", "variant", Unit::text, field<&Op::variant>, Where::table},
      {"pass", "pass", Unit::text, field<&Op::pass>, Where::table},
      {"calls", "calls", Unit::count, [](const Op& op) { return of_calls(op, op.calls); }, Where::wide},
      {kFlops, "FLOP", Unit::number, [](const Op& op) { return of_calls(op, op.cost.flops); }, Where::table,
       "", prefixed<kFlops>},
      {kBytes, "bytes", Unit::number, [](const Op& op) { return of_calls(op, op.cost.bytes); }, Where::table,
       "", prefixed<kBytes>},
      {"bound", "bound", Unit::text, [](const Op& op) { return op.calls > 0 ? Json(op.bound) : Json(); },
       Where::wide},
      {"executed_roofline_ms", "executed", kMs, field<&Op::executed_roofline>, Where::wide},
      {"roofline_ms", "roofline", kMs, gap_ms<&Gap::roofline>, Where::table},
      or_null<Op>({"predicted_ms", "predicted", kMs,
                   [](const Op& op) { return op.predicted ? Json(*op.predicted) : Json(); }, Where::table}),
      {"own_ms", "in calls", kMs, field<&Op::own>, Where::wide},
      {"measured_ms", "measured", kMs, gap_ms<&Gap::measured>, Where::table},
      {"gap_ms", "gap", kMs, gap_ms<&Gap::ms>, Where::table},
      {"causes", "", Unit::text, [](const Op& op) { return causes_json(op.gap); }},
      {"samples_ms", "", Unit::milliseconds, [](const Op& op) { return Json(op.samples); }},
  };
  return kSchema;
}

struct Line {
  const CompareReport& report;
  const ComparedStep& step;
  const StepRow& row() const { return step.measured.row; }
};

template <auto Get>
Json timed(const Line& l) {
  return l.step.timed() ? Json(Get(l)) : Json();
}

// Roofline, prediction, measurement, and why they differ.
Schema<Line> gap_columns() {
  constexpr Unit kMs = Unit::milliseconds;
  return {
      timing_columns<Line>(
          [](const Line& l) { return l.step.timed() ? timing_json(l.row().timing) : Json(); }),
      {"calls", "", Unit::count, timed<[](const Line& l) { return l.step.measured.ran.size(); }>},
      {"launches", "", Unit::count,
       [](const Line& l) { return l.step.facts.kernels ? Json(l.step.measured.launches) : Json(); }},
      {"flops", "", Unit::number, timed<[](const Line& l) { return l.step.measured.executed().flops; }>},
      {"bytes", "", Unit::number, timed<[](const Line& l) { return l.step.measured.executed().bytes; }>},
      {"executed_roofline_ms", "", kMs, timed<[](const Line& l) { return l.step.executed_roofline(); }>},
      {"roofline_ms", "roofline ms", kMs, timed<[](const Line& l) { return l.step.gap.roofline; }>,
       Where::table},
      or_null<Line>({"predicted_ms", "predicted ms", kMs,
                     [](const Line& l) { return l.step.predicted ? Json(*l.step.predicted) : Json(); },
                     Where::table}),
      {"measured_ms", "", kMs, timed<[](const Line& l) { return l.step.gap.measured; }>},
      {"gap_ms", "gap ms", kMs, timed<[](const Line& l) { return l.step.gap.ms(); }>, Where::table},
      {"of_roofline", "of roofline", Unit::percent,
       timed<[](const Line& l) { return l.step.gap.roofline / l.step.gap.measured; }>, Where::table},
      {"causes", "", Unit::text, timed<[](const Line& l) { return causes_json(l.step.gap); }>},
      {"by_op", "", Unit::text, timed<[](const Line& l) { return op_schema().rows(l.step.ops); }>},
  };
}

Schema<Line> place_columns() {
  return {
      {"tokens_per_step", "", Unit::count, timed<[](const Line& l) { return l.row().tokens(); }>},
      {"tokens_per_s", "tokens/s", Unit::rate,
       timed<[](const Line& l) { return l.row().tokens_per_second(); }>, Where::table},
      {"peak_bytes", "peak MiB", Unit::bytes,
       timed<[](const Line& l) { return l.row().measured.peak_total; }>, Where::table},
      {"peak_by_tag", "", Unit::bytes, timed<[](const Line& l) { return tags_json(l.row().measured.peak); }>},
      {"load", "", Unit::number, timed<[](const Line& l) { return l.step.facts.load; }>},
      {"flops_per_s", "", Unit::number, timed<[](const Line& l) { return l.step.rates.flops; }>},
      {"bytes_per_s", "", Unit::number, timed<[](const Line& l) { return l.step.rates.bytes; }>},
      {"rates_from", "", Unit::text,
       [](const Line& l) {
         return Json(l.report.rates_measured ? "measured with this row" : l.report.rates_from);
       }},
      {"no_prediction", "", Unit::text,
       [](const Line& l) {
         return l.step.predicted || l.report.prediction.empty() ? Json() : Json(l.report.prediction);
       }},
  };
}

const Schema<Line>& schema() {
  static const Schema<Line> kSchema =
      Schema<Line>{{.key = "",
                    .title = "",
                    .get = [](const Line& l) { return step_setup_json(l.report.device, l.row()); },
                    .group = step_setup_forms()}} +
      gap_columns() + place_columns();
  return kSchema;
}

Json total_row(const ComparedStep& s) {
  const Cost executed = s.measured.executed();
  Json row = {{"op", "step"},
              {"calls", s.measured.ran.size()},
              {kFlops, executed.flops},
              {kBytes, executed.bytes},
              {"executed_roofline_ms", s.executed_roofline()},
              {"roofline_ms", s.gap.roofline},
              {"measured_ms", s.gap.measured},
              {"gap_ms", s.gap.ms()}};
  if (s.predicted) row["predicted_ms"] = *s.predicted;
  return row;
}

std::string place_of(const CompareReport& r) {
  return place_line(r.device, r.device_name, r.threads, r.isa, r.copy, r.flops,
                    r.rates_measured ? "measured here" : "of the hardware file");
}

StudyPage step_part(const CompareReport& report, const ComparedStep& s, bool wide) {
  const StepRow& row = s.measured.row;
  StudyPage page;
  page.place = name_of_step(row);
  page.columns = op_schema().forms();
  page.shown.wide = wide;
  for (const ComparedOp& op : s.ops) page.rows.push_back(op_schema().row(op));
  if (s.timed()) {
    page.rows.push_back(total_row(s));
    page.tables.push_back({"gap to the roofline by cause, ms", gap_table(s), 2});
  }
  page.notes = compare_notes(s);
  if (!s.predicted && !report.prediction.empty() && s.timed()) page.notes.push_back(report.prediction);
  if (!report.rates_measured) page.notes.push_back(report.rates_from);
  return page;
}

}  // namespace

std::string prefixed_figure(double value) {
  constexpr std::array<std::string_view, 6> kPrefixes = {"", " k", " M", " G", " T", " P"};
  std::size_t at = 0;
  while (at + 1 < kPrefixes.size() && std::abs(value) >= 999.5) {
    value /= 1000;
    ++at;
  }
  return fmt::format("{}{}", plain(value, 3), kPrefixes[at]);
}

Json causes_json(const Gap& gap) {
  Json causes = Json::array();
  for (const Cause& c : gap.causes)
    causes.append({{"name", c.name()}, {"ms", c.ms}, {"evidence", c.evidence}});
  return causes;
}

std::span<const ColumnForm> compare_columns() { return schema().forms(); }

StudyPage compare_page(const CompareReport& report, bool wide) {
  StudyPage page;
  std::vector<Json> rows;
  for (const ComparedStep& s : report.steps) rows.push_back(schema().row({report, s}));
  if (report.steps.size() == 1) {
    page = step_part(report, report.steps.front(), wide);
    page.place = fmt::format("{}\n{}", place_of(report), page.place);
  } else {
    page.place = place_of(report);
    for (const ComparedStep& s : report.steps) page.parts.push_back(step_part(report, s, wide));
  }
  add_load_note(report, page.notes);
  page.json = bench_document("compare", report, rows);
  return page;
}

std::vector<std::string> compare_result_lines(const CompareReport& report) {
  std::vector<std::string> lines;
  for (const ComparedStep& s : report.steps) {
    if (s.measured.row.status == RowStatus::failed) continue;
    lines.push_back(
        result_line("compare", schema().row({report, s}), s.measured.row.timing, host_json(report)));
  }
  return lines;
}

}  // namespace kiln
