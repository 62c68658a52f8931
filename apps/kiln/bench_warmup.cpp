#include "studies/warmup/warmup.h"

#include <fmt/format.h>

#include "base/build_info.h"
#include "studies/format.h"
#include "studies/place.h"
#include "kiln/study_tables.h"
#include "train/run/tuned.h"
#include "report/result_table.h"

namespace kiln::cli {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

ordered_json first_step_json(const WarmupReport& r) {
  const FirstStepParts& p = r.run.parts;
  const FirstStepFacts& f = r.run.facts;
  return {{"context_ms", ms(r.context)},
          {"handles_ms", ms(r.run.handles)},
          {"model_ms", ms(r.run.model)},
          {"first_ms", ms(f.first)},
          {"steady_ms", ms(f.steady)},
          {"excess_ms", ms(p.excess)},
          {"module_load_ms", ms(p.module_load)},
          {"library_ms", ms(p.matrix_library)},
          {"allocator_growth_ms", ms(p.allocator_growth)},
          {"page_faults_ms", ms(p.page_faults)},
          {"clock_ramp_ms", ms(p.clock_ramp)},
          {"hidden_ms", -ms(p.hidden)},
          {"rest_ms", ms(p.rest)},
          {"segments", f.segments},
          {"segment_bytes", f.segment_bytes},
          {"page_faults", f.faults_first},
          {"page_faults_of_a_warm_step", f.faults_warm}};
}

ordered_json row_json(const WarmupReport& report) {
  const StepRow& r = report.row;
  ordered_json row = {{"size", r.size.name},
                      {"mode", name_of(r.spec.mode)},
                      {"device", report.device},
                      {"dtype", name_of(r.spec.precision)},
                      {"batch", r.spec.step.batch},
                      {"ctx", r.spec.step.context},
                      {"vocab", r.spec.model.vocab},
                      {"params", param_count(r.size)},
                      {"preset", r.preset},
                      {"variants", r.variants},
                      {"variant_set", r.variant_set()},
                      {"gate", r.timed()                                ? "passed"
                               : r.status == StepRow::Status::no_memory ? "no memory"
                                                                        : "failed"}};
  if (!r.timed()) {
    row["reason"] = r.reason;
    return row;
  }
  ordered_json steps = ordered_json::array();
  for (double s : report.run.steps) steps.push_back(ms(s));
  row["graph"] = r.captured ? "captured" : "off";
  row.update(timing_json(r.timing));
  row.update({{"predicted_ms", r.predicted_ms()},
              {"floor_ms", r.floor_ms()},
              {"of_roofline", r.floor_ms() / ms(r.timing.p50)},
              {"peak_bytes", r.measured.peak_total},
              {"predicted_peak_bytes", r.predicted.peak_total},
              {"steps_ms", steps},
              {"first_step", first_step_json(report)}});
  return row;
}

}  // namespace

WarmupReport bench_warmup(const WarmupRequest& request) {
  const BenchStepRequest& r = request.step;
  WarmupReport report;
  report.context = request.context_seconds;
  report.device = r.device.str();
  report.row = step_rows(r).front();
  StepRow& row = report.row;
  if (plan_row(r, row)) {
    report.run = run_warmup(rank_for(r, row), row.spec, r.warmups, r.steps, [&](RankContext& ctx) {
      if (r.tuning) use_tuning(ctx, *r.tuning);
    });
    const std::vector<double>& steps = report.run.steps;
    row.timing = summarize({steps.begin() + r.warmups, steps.end()});
    row.timing.warmups = r.warmups;
    row.captured = report.run.captured;
    row.measured = report.run.memory;
  }
  const DType dtype = policy_of(row.spec.precision).compute;
  const MeasuredPlace place =
      measure_place(r.device, r.threads, {dtype});  // last: it would warm everything up
  report.device_name = place.name;
  report.isa = place.isa;
  report.threads = place.threads;
  row.best = {place.ceilings.flops.at(dtype).per_second, place.ceilings.copy};
  return report;
}

std::string warmup_page(const WarmupReport& report, PageFormat format) {
  const std::vector<std::string> lines = warmup_result_lines(report);
  const std::vector<json> rows = rows_of(lines);
  if (format == PageFormat::json)
    return dump({{"command", "bench warmup"},
                 {"device", report.device},
                 {"host", host_json(report)},
                 {"build_id", build_info().build_id},
                 {"rows", ordered_json::array({row_json(report)})}},
                2) +
           "\n";
  const ResultTable table = result_table(rows, {});
  std::string text = written(table.table, table.left, format);
  return format == PageFormat::csv ? text : text + studies_page("bench warmup", rows, format);
}

std::vector<std::string> warmup_result_lines(const WarmupReport& report) {
  if (report.row.status == StepRow::Status::failed) return {};
  return {result_line("bench warmup", row_json(report), report.row.timing, host_json(report))};
}

}  // namespace kiln::cli
