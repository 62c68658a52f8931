#include "studies/step/render.h"

#include <fmt/format.h>

#include <cmath>

#include "perf/timing/statistics.h"
#include "rows/row_outcome.h"
#include "studies/format.h"
#include "studies/roofline.h"
#include "studies/row_tables.h"
#include "studies/step/split_render.h"
#include "train/memory_prediction.h"

namespace kiln {
namespace {

// A row with the device of its report, which is the same for all of them.
struct Line {
  const std::string& device;
  const StepRow& row;
};

const Timing* phase_timing(const StepRow& r, StepPhase p) {
  const auto at = static_cast<std::size_t>(p);
  return r.phases && r.phases->phases[at] ? &*r.phases->phases[at] : nullptr;
}

// A value of rows that were timed.
template <auto Get>
Json timed(const Line& l) {
  return l.row.timed() ? Json(Get(l.row)) : Json();
}

template <StepPhase kPhase>
Json phase_ms(const Line& l) {
  const Timing* t = phase_timing(l.row, kPhase);
  return t == nullptr ? Json() : Json(ms(t->p50));
}

Json ops_of(const Line& l) {
  Json ops = Json::object();
  for (const auto& [op, variant] : l.row.ops) ops[op] = variant;
  return ops;
}

// By the ops' own cost functions, recomputed work included.
Cost executed(const StepRow& r) {
  Cost sum;
  for (const TimedOp& op : r.planned) sum = sum + op.cost;
  return sum;
}

Json phases_of(const Line& l) {
  if (!l.row.phases) return {};
  Json phases = Json::object();
  for (StepPhase p : {StepPhase::forward, StepPhase::backward, StepPhase::update}) {
    if (const Timing* t = phase_timing(l.row, p)) phases[name_of(p)] = timing_json(*t);
  }
  phases["host"] = timing_json(l.row.phases->host);
  phases["graph"] = l.row.phases->captured ? "captured" : "off";
  return phases;
}

template <class T>
Json where_no_memory(const StepRow& r, T value) {
  return r.status == RowStatus::oom ? Json(value) : Json();
}

// The options that decide a figure, in the order a person asks for them.
// What was run.
Schema<Line> setup_columns() {
  return {
      {"size", "size", Unit::text, [](const Line& l) { return Json(l.row.size.name); }, Where::table},
      {"mode", "mode", Unit::text, [](const Line& l) { return Json(name_of(l.row.spec.mode)); },
       Where::differs},
      {"device", "device", Unit::text, [](const Line& l) { return Json(l.device); }},
      {"dtype", "precision", Unit::text, [](const Line& l) { return Json(name_of(l.row.spec.precision)); },
       Where::table},
      {"batch", "batch", Unit::text, [](const Line& l) { return Json(l.row.spec.step.batch); },
       Where::differs},
      {"ctx", "ctx", Unit::text, [](const Line& l) { return Json(l.row.spec.step.context); }, Where::table},
      {"vocab", "vocab", Unit::text, [](const Line& l) { return Json(l.row.spec.model.vocab); }},
      {"params", "parameters", Unit::rate, [](const Line& l) { return Json(param_count(l.row.size)); }},
      {"micro_steps", "grad accum", Unit::text,
       [](const Line& l) { return Json(l.row.spec.step.micro_steps); }, Where::differs},
      {"clip", "clip", Unit::text, [](const Line& l) { return Json(l.row.spec.step.max_norm); }},
      {"recompute", "recompute", Unit::text,
       [](const Line& l) { return Json(name_of(l.row.spec.model.recompute)); }, Where::differs},
      {"preset", "preset", Unit::text, [](const Line& l) { return Json(l.row.preset); }, Where::table},
      {"compile", "compile", Unit::text,
       [](const Line& l) { return Json(name_of(l.row.spec.model.compile)); }, Where::differs},
      {"variants", "variants", Unit::text, [](const Line& l) { return Json(l.row.variants); },
       Where::differs},
      {"variant_set", "", Unit::text, [](const Line& l) { return Json(l.row.variant_set()); }},
      {"ops", "", Unit::text, ops_of},
      outcome_columns<Line>([](const Line& l) { return outcome_json(l.row); }),
      {"predicted_peak_bytes", "predicted MiB", Unit::bytes,
       [](const Line& l) { return Json(l.row.predicted.peak_total); }, Where::wide},
      {"predicted_peak_by_tag", "", Unit::bytes,
       [](const Line& l) { return tags_json(l.row.predicted.peak); }},
      {"available_bytes", "", Unit::bytes,
       [](const Line& l) { return where_no_memory(l.row, l.row.free_memory); }},
      {"largest_batch", "", Unit::count,
       [](const Line& l) { return where_no_memory(l.row, l.row.largest_batch); }},
  };
}

// What it cost in time, against the device and the roofline.
Schema<Line> time_columns() {
  return {
      {"graph", "graph", Unit::text, timed<[](const StepRow& r) { return r.captured ? "captured" : "off"; }>,
       Where::differs},
      {"by_turns", "", Unit::text, timed<[](const StepRow& r) { return r.by_turns; }>},
      timing_columns<Line>([](const Line& l) { return l.row.timed() ? timing_json(l.row.timing) : Json(); }),
      {"predicted_step_ms", "predicted", Unit::milliseconds,
       [](const Line& l) { return l.row.foreseen ? Json(ms(l.row.foreseen->total())) : Json(); },
       Where::table},
      {"prediction_error", "off", Unit::percent,
       [](const Line& l) {
         return l.row.timed() && l.row.foreseen ? Json(l.row.prediction_error()) : Json();
       },
       Where::table},
      {"forward_ms", "forward", Unit::milliseconds, phase_ms<StepPhase::forward>, Where::table},
      {"backward_ms", "backward", Unit::milliseconds, phase_ms<StepPhase::backward>, Where::table},
      {"optimizer_ms", "optimizer", Unit::milliseconds, phase_ms<StepPhase::update>, Where::table},
      {"wall_ms", "", Unit::milliseconds, timed<[](const StepRow& r) { return ms(r.wall); }>},
      {"tokens_per_step", "", Unit::count, timed<[](const StepRow& r) { return r.tokens(); }>},
      {"tokens_per_s", "tokens/s", Unit::rate, timed<[](const StepRow& r) { return r.tokens_per_second(); }>,
       Where::table},
      {"flops", "", Unit::number, timed<[](const StepRow& r) { return r.flops; }>},
      {"executed_flops", "", Unit::number, timed<[](const StepRow& r) { return executed(r).flops; }>},
      {"bytes", "", Unit::number, timed<[](const StepRow& r) { return executed(r).bytes; }>},
      {"tflops", "TFLOP/s", Unit::number, timed<[](const StepRow& r) { return r.flops_per_second() / 1e12; }>,
       Where::wide},
      {"of_gemm", "of gemm", Unit::percent,
       timed<[](const StepRow& r) { return r.flops_per_second() / r.best.flops; }>, Where::table},
      roofline_columns<Line>(timed<[](const StepRow& r) { return roofline_json(r.roofline()); }>),
  };
}

// Memory, the first step, losses, and where the time went.
Schema<Line> result_columns() {
  return {
      {"peak_bytes", "peak MiB", Unit::bytes, timed<[](const StepRow& r) { return r.measured.peak_total; }>,
       Where::table},
      {"peak_by_tag", "", Unit::bytes, timed<[](const StepRow& r) { return tags_json(r.measured.peak); }>},
      {"reserved_bytes", "", Unit::bytes, timed<[](const StepRow& r) { return r.measured.peak_reserved; }>},
      {"first_step_ms", "first step s", Unit::seconds, timed<[](const StepRow& r) { return ms(r.first); }>,
       Where::wide},
      {"compile_ms", "compile ms", Unit::milliseconds,
       [](const Line& l) { return l.row.compile_seconds > 0 ? Json(ms(l.row.compile_seconds)) : Json(); },
       Where::differs},
      {"first_eager_step_ms", "", Unit::seconds, timed<[](const StepRow& r) { return ms(r.first_eager); }>},
      {"first_loss", "", Unit::number, timed<[](const StepRow& r) { return r.first_loss; }>},
      {"last_loss", "", Unit::number, timed<[](const StepRow& r) { return r.last_loss; }>},
      {"no_phases", "", Unit::text,
       [](const Line& l) { return l.row.why_no_phases.empty() ? Json() : Json(l.row.why_no_phases); }},
      {"host_p50_ms", "", Unit::milliseconds,
       [](const Line& l) { return l.row.phases ? Json(ms(l.row.phases->host.p50)) : Json(); }},
      {"phases", "", Unit::text, phases_of},
      {"split", "", Unit::text, [](const Line& l) { return l.row.split ? split_json(l.row) : Json(); }},
  };
}

const Schema<Line>& schema() {
  static const Schema<Line> kSchema =
      setup_columns() + Schema<Line>{{"ranks", "", Unit::text, [](const Line&) { return Json(1); }}} +
      time_columns() + result_columns();
  return kSchema;
}

std::string name_of_row(const StepRow& r) {
  return fmt::format("{} {} {} {}{}{}", r.size.name, name_of(r.spec.mode), name_of(r.spec.precision),
                     r.preset, r.variants.empty() ? "" : ",", r.variants);
}

std::string why_not(const StepRow& r) {
  if (r.status != RowStatus::oom) return fmt::format("{}: {}", name_of(r.status), r.reason);
  return fmt::format("OOM: {}; needed: {} ({} at peak); largest batch that fits: {}{}", r.reason,
                     needed_by_tag(r.predicted), human({r.predicted.peak_total}), r.largest_batch,
                     r.ways_out.empty() ? "" : "; what fits: " + r.ways_out);
}

std::vector<std::string> notes_of(const StepRow& r) {
  const std::string name = name_of_row(r);
  std::vector<std::string> notes;
  if (!r.policy.empty()) notes.push_back(fmt::format("{}: {}", name, r.policy));
  if (!r.timed()) {
    notes.push_back(fmt::format("{}: {}", name, why_not(r)));
    return notes;
  }
  if (!r.why_no_phases.empty())
    notes.push_back(fmt::format("{}: phases were not timed: {}", name, r.why_no_phases));
  if (r.timing.samples.size() < kLeastForInterval)
    notes.push_back(fmt::format("{}: {}: too few to say how well the mean is known", name, r.timing.noise()));
  else if (!r.stable())
    notes.push_back(fmt::format("{}: noisy, the mean is known only to ±{:.0f} %", name,
                                100 * confidence_95(r.timing.samples).half_width() / r.timing.mean));
  if (r.measured.peak_total != r.predicted.peak_total)
    notes.push_back(fmt::format(
        "{}: measured peak differs from the predicted one by {} bytes", name,
        static_cast<int64_t>(r.measured.peak_total) - static_cast<int64_t>(r.predicted.peak_total)));
  return notes;
}

}  // namespace

std::span<const ColumnForm> step_columns() { return schema().forms(); }

std::span<const ColumnForm> step_setup_forms() {
  static const Schema<Line> kSetup = setup_columns();
  return kSetup.forms();
}

Json step_setup_json(const std::string& device, const StepRow& row) {
  static const Schema<Line> kSetup = setup_columns();
  return kSetup.row({device, row});
}

StudyPage step_page(const BenchStepReport& report, bool wide) {
  StudyPage page;
  page.place =
      place_line(report.device, report.device_name, report.threads, report.isa, report.copy, report.flops);
  page.columns = step_columns();
  page.shown.wide = wide;
  std::vector<Json> all_timed, others;
  for (const StepRow& r : report.rows) {
    page.rows.push_back(schema().row({report.device, r}));
    (r.timed() ? all_timed : others).push_back(page.rows.back());
    for (std::string& note : notes_of(r)) page.notes.push_back(std::move(note));
    if (!r.timed() || !r.split) continue;
    page.tables.push_back({fmt::format("{}: where the milliseconds go", name_of_row(r)), split_table(r), 1});
    if (report.kernels > 0) page.tables.push_back({"", kernel_table(r, report.kernels), 2});
  }
  for (std::string& note : roofline_notes(all_timed)) page.notes.push_back(std::move(note));
  if (!report.prediction_note.empty() && !all_timed.empty())
    page.notes.push_back("Predictions: " + report.prediction_note + ".");
  add_load_note(report, page.notes);
  const std::vector<Json> stored = rows_of(step_result_lines(report));
  for (PageTable& t : study_tables("bench step", stored)) page.tables.push_back(std::move(t));
  page.json = bench_document("bench step", report, all_timed);
  page.json["not_timed"] = others;
  page.json.update(studies_json("bench step", stored));
  return page;
}

std::vector<std::string> step_result_lines(const BenchStepReport& report) {
  std::vector<std::string> lines;
  for (const StepRow& r : report.rows) {
    if (r.status == RowStatus::failed) continue;
    lines.push_back(result_line("bench step", schema().row({report.device, r}), r.timing, host_json(report)));
  }
  return lines;
}

}  // namespace kiln
