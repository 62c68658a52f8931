#include "studies/measure/measure.h"

#include <fmt/format.h>

#include "perf/timing/statistics.h"
#include "rows/row_values.h"
#include "studies/calc/derivation.h"
#include "studies/format.h"
#include "studies/place.h"
#include "studies/step/render.h"

namespace kiln {
namespace {

// Calls of an op with their times, where calls were timed.
struct CallsLine {
  const MeasuredStep& step;
  OpCalls calls;

  Json measured() const { return step.steps.empty() ? Json() : Json(median_of(step.samples_of(calls))); }
};

const Schema<CallsLine>& calls_schema() {
  using L = CallsLine;
  static const Schema<L> kSchema = {
      {"op", "op", Unit::text, [](const L& l) { return Json(l.calls.op); }},
      {"variant", "variant", Unit::text, [](const L& l) { return Json(l.calls.variant); }},
      {"pass", "pass", Unit::text, [](const L& l) { return Json(l.calls.pass); }},
      {"calls", "calls", Unit::count, [](const L& l) { return Json(l.calls.calls.size()); }},
      {"flops", "FLOP", Unit::number, [](const L& l) { return Json(l.calls.cost.flops); }},
      {"bytes", "bytes", Unit::number, [](const L& l) { return Json(l.calls.cost.bytes); }},
      or_null<L>({"measured_ms", "ms", Unit::milliseconds, [](const L& l) { return l.measured(); }}),
      {"samples_ms", "", Unit::milliseconds,
       [](const L& l) { return l.step.steps.empty() ? Json() : Json(l.step.samples_of(l.calls)); }},
  };
  return kSchema;
}

struct Line {
  const MeasureReport& report;
  const MeasuredStep& step;
};

template <auto Get>
Json timed(const Line& l) {
  return l.step.timed() ? Json(Get(l.step)) : Json();
}

// As rows of ops, the last being what is outside of them.
Json by_op(const MeasuredStep& s) {
  Json rows = Json::array();
  for (OpCalls& calls : group_calls(s.ran)) rows.append(calls_schema().row({s, std::move(calls)}));
  if (s.steps.empty()) return rows;
  std::vector<double> outside;
  for (const StepCalls& step : s.steps) outside.push_back(step.outside());
  rows.append({{"op", "outside of ops"},
               {"pass", ""},
               {"variant", ""},
               {"measured_ms", median_of(outside)},
               {"samples_ms", outside}});
  return rows;
}

template <const char* kKey, const char* kUnit>
std::string prefixed(const Json& row) {
  const auto value = number_at(row, kKey);
  return value ? with_unit(*value, kUnit) : "-";
}
constexpr char kFlops[] = "flops", kBytes[] = "bytes", kFlopUnit[] = "FLOP", kByteUnit[] = "B";

const Schema<Line>& schema() {
  static const Schema<Line> kSchema = {
      {.key = "",
       .title = "",
       .get = [](const Line& l) { return step_setup_json(l.report.device, l.step.row); },
       .group = step_setup_forms()},
      {"strategy", "strategy", Unit::text,
       [](const Line& l) { return Json(l.step.share ? l.step.share->strategy : "none"); }, Where::differs},
      {"ranks", "ranks", Unit::text,
       [](const Line& l) { return Json(l.step.share ? l.step.share->ranks : 1); }, Where::differs},
      timing_columns<Line>(
          [](const Line& l) { return l.step.timed() ? timing_json(l.step.row.timing) : Json(); }),
      {kFlops, "executed", Unit::number, timed<[](const MeasuredStep& s) { return s.executed().flops; }>,
       Where::table, "", prefixed<kFlops, kFlopUnit>},
      {kBytes, "moved", Unit::number, timed<[](const MeasuredStep& s) { return s.executed().bytes; }>,
       Where::table, "", prefixed<kBytes, kByteUnit>},
      {"model_flops", "", Unit::number, timed<[](const MeasuredStep& s) { return s.row.flops; }>},
      {"op_calls", "op calls", Unit::count, timed<[](const MeasuredStep& s) { return s.op_calls(); }>,
       Where::table},
      {"launches", "launches", Unit::count,
       [](const Line& l) { return l.step.launches > 0 ? Json(l.step.launches) : Json(); }, Where::table},
      {"tflops", "TFLOP/s", Unit::number,
       timed<[](const MeasuredStep& s) { return s.executed().flops / s.row.timing.p50 / 1e12; }>,
       Where::wide},
      {"gb_per_s", "GB/s", Unit::number,
       timed<[](const MeasuredStep& s) { return s.executed().bytes / s.row.timing.p50 / 1e9; }>, Where::wide},
      {"tokens_per_step", "", Unit::count, timed<[](const MeasuredStep& s) { return s.tokens(); }>},
      {"tokens_per_s", "tokens/s", Unit::rate,
       timed<[](const MeasuredStep& s) { return static_cast<double>(s.tokens()) / s.row.timing.p50; }>,
       Where::wide},
      {"peak_bytes", "peak MiB", Unit::bytes,
       timed<[](const MeasuredStep& s) { return s.row.measured.peak_total; }>, Where::table},
      {"peak_by_tag", "", Unit::bytes,
       timed<[](const MeasuredStep& s) { return tags_json(s.row.measured.peak); }>},
      {"sent_bytes", "", Unit::bytes,
       [](const Line& l) { return l.step.share ? Json(l.step.share->sent) : Json(); }},
      {"load", "", Unit::number, timed<[](const MeasuredStep& s) { return s.load; }>},
      {"by_op", "", Unit::text, timed<[](const MeasuredStep& s) { return by_op(s); }>},
  };
  return kSchema;
}

// Peaks by purpose: a line for each row that was timed.
TextTable peak_table(const MeasureReport& report) {
  TextTable table = {{"size", "precision", "ctx", "preset"}};
  std::vector<Tag> tags;
  for (int i = 0; i < kTagCount; ++i) {
    const auto tag = static_cast<Tag>(i);
    for (const MeasuredStep& s : report.steps) {
      if (!s.timed() || s.row.measured.peak[tag] == 0) continue;
      tags.push_back(tag);
      table.front().emplace_back(name_of(tag));
      break;
    }
  }
  for (const MeasuredStep& s : report.steps) {
    if (!s.timed()) continue;
    std::vector<std::string> line = {s.row.size.name, std::string(name_of(s.row.spec.precision)),
                                     fmt::format("{}", s.row.spec.step.context), s.row.preset};
    for (const Tag tag : tags) line.push_back(fine_mib(static_cast<double>(s.row.measured.peak[tag])));
    table.push_back(std::move(line));
  }
  return table;
}

std::string place_of(const MeasureReport& r) {
  if (r.device != "cpu") return fmt::format("{} ({})", r.device, r.device_name);
  return fmt::format("cpu ({}), {} thread{}, {}", r.device_name, r.threads, r.threads == 1 ? "" : "s", r.isa);
}

}  // namespace

MeasureReport measure(const MeasureRequest& request, const Progress& progress) {
  MeasureReport report;
  const MeasuredPlace place = find_place(request.step.device, request.step.threads);
  report.device = request.step.device.str();
  report.device_name = place.name;
  report.isa = place.isa;
  report.threads = place.threads;
  const LoadWatch load(request.step.device);
  report.steps = measure_steps({&request, 1}, /*by_turns=*/false, progress);
  report.load = load.load();
  return report;
}

std::span<const ColumnForm> measure_columns() { return schema().forms(); }

StudyPage measure_page(const MeasureReport& report, bool wide) {
  StudyPage page;
  page.place = place_of(report);
  page.columns = measure_columns();
  page.shown.wide = wide;
  Json rows = Json::array();
  for (const MeasuredStep& s : report.steps) {
    page.rows.push_back(schema().row({report, s}));
    rows.append(page.rows.back());
    if (!s.timed())
      page.notes.push_back(fmt::format("{}: {}: {}", s.row.size.name, name_of(s.row.status), s.row.reason));
  }
  if (TextTable peaks = peak_table(report); peaks.size() > 1)
    page.tables.push_back({"peak memory by purpose, MiB, each at its own moment", std::move(peaks), 4});
  add_load_note(report, page.notes);
  page.json = {{"command", "measure"},
               {"device", report.device},
               {"host", host_json(report)},
               {"build_id", own_build()},
               {"rows", rows}};
  return page;
}

std::vector<std::string> measure_result_lines(const MeasureReport& report) {
  std::vector<std::string> lines;
  for (const MeasuredStep& s : report.steps) {
    if (s.row.status == RowStatus::failed) continue;
    lines.push_back(result_line("measure", schema().row({report, s}), s.row.timing, host_json(report)));
  }
  return lines;
}

}  // namespace kiln
