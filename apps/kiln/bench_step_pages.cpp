#include "kiln/bench_step_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "studies/format.h"
#include "studies/step/split_render.h"
#include "kiln/study_tables.h"
#include "perf/timing/statistics.h"
#include "rows/result_log.h"
#include "train/memory_prediction.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

std::string mib(std::size_t bytes) { return fmt::format("{:.0f}", static_cast<double>(bytes) / 0x1p20); }

std::string place(const BenchStepReport& r) {
  return place_line(r.device, r.device_name, r.threads, r.isa, r.copy, r.flops);
}

std::string_view status_name(const StepRow& r) {
  return r.timed() ? "passed" : r.status == StepRow::Status::no_memory ? "no memory" : "failed";
}

std::string why_not(const StepRow& r) {
  if (r.status != StepRow::Status::no_memory) return r.reason;
  return fmt::format("no memory: {}; needed: {} ({} at once); largest batch that fits: {}", r.reason,
                     needed_by_tag(r.predicted), human({r.predicted.peak_total}), r.largest_batch);
}

const std::vector<std::string> kHeader = {
    "size",     "mode",      "dtype",         "ctx",          "preset",  "graph",
    "ms p50",   "mean",      "std (of mean)", "95 % of mean", "verdict", "forward",
    "backward", "optimizer", "tokens/s",      "TFLOP/s",      "of gemm", "predicted ms",
    "floor ms", "peak MiB",  "predicted",     "first step s"};
constexpr std::size_t kLeft = 6;  // columns of words

std::string title(const StepRow& r) {
  return r.variants.empty() ? r.preset : fmt::format("{},{}", r.preset, r.variants);
}

std::vector<std::string> head_cells(const StepRow& r) {
  return {std::string(r.size.name),
          std::string(name_of(r.spec.mode)),
          std::string(name_of(r.spec.precision)),
          fmt::format("{}", r.spec.step.context),
          title(r),
          r.captured ? "captured" : "off"};
}

std::string interval(const Timing& t) {
  const Interval i = confidence_95(t.samples);
  return fmt::format("{:.4g} to {:.4g}", ms(i.low), ms(i.high));
}

const Timing* phase_timing(const StepRow& r, StepPhase p) {
  const auto at = static_cast<std::size_t>(p);
  return r.phases && r.phases->phases[at] ? &*r.phases->phases[at] : nullptr;
}

std::string phase_ms(const StepRow& r, StepPhase p) {
  const Timing* t = phase_timing(r, p);
  return t == nullptr ? "-" : fmt::format("{:.4g} +- {:.2g}", ms(t->mean), ms(t->std));
}

std::vector<std::string> cells(const StepRow& r) {
  std::vector<std::string> line = head_cells(r);
  for (std::string& cell : std::vector<std::string>{
           fmt::format("{:.4g}", ms(r.timing.p50)), fmt::format("{:.4g}", ms(r.timing.mean)),
           fmt::format("{} ({:.0f} %)", digits(ms(r.timing.std)), 100 * r.variation()), interval(r.timing),
           std::string(r.stable() ? "stable" : "noisy"), phase_ms(r, StepPhase::forward),
           phase_ms(r, StepPhase::backward), phase_ms(r, StepPhase::update), digits(r.tokens_per_second()),
           digits(r.flops_per_second() / 1e12),
           fmt::format("{:.0f} %", 100 * r.flops_per_second() / r.best.flops), digits(r.predicted_ms()),
           digits(r.floor_ms()), mib(r.measured.peak_total), mib(r.predicted.peak_total),
           fmt::format("{:.2f}", r.first)})
    line.push_back(std::move(cell));
  return line;
}

// --- rows as JSON

// By the ops' own cost functions, recomputed work included.
Cost executed(const StepRow& r) {
  Cost sum;
  for (const TimedOp& op : r.planned) sum = sum + op.cost;
  return sum;
}

// Medians beside the row's other figures, and all that is known of each phase below `phases`.
void add_phases(const StepRow& r, ordered_json& row) {
  if (!r.phases) {
    if (!r.why_no_phases.empty()) row["no_phases"] = r.why_no_phases;
    return;
  }
  ordered_json phases = ordered_json::object();
  for (StepPhase p : {StepPhase::forward, StepPhase::backward, StepPhase::update}) {
    const Timing* t = phase_timing(r, p);
    if (t == nullptr) continue;
    row[fmt::format("{}_ms", name_of(p))] = ms(t->p50);
    phases[std::string(name_of(p))] = timing_json(*t);
  }
  row["host_p50_ms"] = ms(r.phases->host.p50);
  phases["host"] = timing_json(r.phases->host);
  phases["graph"] = r.phases->captured ? "captured" : "off";
  row["phases"] = phases;
}

ordered_json row_json(const BenchStepReport& report, const StepRow& r) {
  const StepOptions& step = r.spec.step;
  ordered_json ops = ordered_json::object();
  for (const auto& [op, variant] : r.ops) ops[op] = variant;
  ordered_json row = {{"size", r.size.name},
                      {"mode", name_of(r.spec.mode)},
                      {"device", report.device},
                      {"dtype", name_of(r.spec.precision)},
                      {"batch", step.batch},
                      {"ctx", step.context},
                      {"vocab", r.spec.model.vocab},
                      {"params", param_count(r.size)},
                      {"micro_steps", step.micro_steps},
                      {"clip", step.max_norm},
                      {"recompute", name_of(r.spec.model.recompute)},
                      {"preset", r.preset},
                      {"variants", r.variants},
                      {"variant_set", r.variant_set()},
                      {"ops", ops},
                      {"ranks", 1},
                      {"gate", status_name(r)},
                      {"predicted_peak_bytes", r.predicted.peak_total},
                      {"predicted_peak_by_tag", tags_json(r.predicted.peak)}};
  if (!r.timed()) {
    row["reason"] = r.reason;
    if (r.status == StepRow::Status::no_memory) {
      row["available_bytes"] = r.room;
      row["largest_batch"] = r.largest_batch;
    }
    return row;
  }
  const Timing& t = r.timing;
  row["graph"] = r.captured ? "captured" : "off";
  row.update(timing_json(t));
  row.update({{"wall_ms", ms(r.wall)},
              {"tokens_per_step", r.tokens()},
              {"tokens_per_s", r.tokens_per_second()},
              {"flops", r.flops},
              {"executed_flops", executed(r).flops},
              {"bytes", executed(r).bytes},
              {"tflops", r.flops_per_second() / 1e12},
              {"of_gemm", r.flops_per_second() / r.best.flops},
              {"predicted_ms", r.predicted_ms()},
              {"floor_ms", r.floor_ms()},
              {"of_roofline", r.floor_ms() / ms(t.p50)},
              {"peak_bytes", r.measured.peak_total},
              {"peak_by_tag", tags_json(r.measured.peak)},
              {"reserved_bytes", r.measured.peak_reserved},
              {"first_step_ms", ms(r.first)},
              {"first_eager_step_ms", ms(r.first_eager)},
              {"first_loss", r.first_loss},
              {"last_loss", r.last_loss}});
  add_phases(r, row);
  if (r.split) row["split"] = split_json(r);
  return row;
}

}  // namespace

std::string step_text(const BenchStepReport& report) {
  std::string text = place(report) + "\n\n";
  TextTable table = {kHeader};
  std::string remarks;
  for (const StepRow& r : report.rows) {
    const std::string name =
        fmt::format("{} {} {} {}", r.size.name, name_of(r.spec.mode), name_of(r.spec.precision), title(r));
    if (!r.timed()) {
      remarks += fmt::format("{}: {}\n", name, why_not(r));
      continue;
    }
    table.push_back(cells(r));
    if (!r.why_no_phases.empty())
      remarks += fmt::format("{}: phases were not timed: {}\n", name, r.why_no_phases);
    if (!r.stable())
      remarks += fmt::format("{}: noisy, the mean is known to +- {:.0f} % only\n", name,
                             100 * confidence_95(r.timing.samples).half_width() / r.timing.mean);
    if (r.measured.peak_total != r.predicted.peak_total)
      remarks += fmt::format(
          "{}: measured peak differs from the predicted one by {} bytes\n", name,
          static_cast<int64_t>(r.measured.peak_total) - static_cast<int64_t>(r.predicted.peak_total));
  }
  if (table.size() > 1) text += aligned(table, kLeft);
  text += remarks;
  for (const StepRow& r : report.rows) {
    if (!r.timed() || !r.split) continue;
    text += fmt::format("\n{} {} {}: where the milliseconds go\n", r.size.name, name_of(r.spec.precision),
                        title(r));
    text += aligned(split_table(r), 1);
    if (report.kernels > 0) text += fmt::format("\n{}", aligned(kernel_table(r, report.kernels), 2));
  }
  return text + studies_page("bench step", rows_of(step_result_lines(report)), PageFormat::text);
}

std::string step_latex(const BenchStepReport& report) {
  TextTable table = {kHeader};
  for (const StepRow& r : report.rows) {
    if (r.timed()) table.push_back(cells(r));
  }
  std::string text = fmt::format("% {}\n{}", place(report), latex_table(table, kLeft));
  for (const StepRow& r : report.rows) {
    if (!r.timed())
      text += remark(fmt::format("{} {}: {}", r.size.name, r.variant_set(), why_not(r)), PageFormat::latex);
  }
  for (const StepRow& r : report.rows) {
    if (!r.timed() || !r.split) continue;
    text += heading(fmt::format("{}, {}", r.size.name, r.variant_set()), PageFormat::latex) +
            latex_table(split_table(r), 1);
    if (report.kernels > 0) text += latex_table(kernel_table(r, report.kernels), 2);
  }
  return text + studies_page("bench step", rows_of(step_result_lines(report)), PageFormat::latex);
}

std::string step_page(const BenchStepReport& report, PageFormat format) {
  return PageForms<BenchStepReport>{step_text, step_markdown, step_csv, step_latex, step_json}(report,
                                                                                               format);
}

std::string step_markdown(const BenchStepReport& report) {
  std::string text = fmt::format("{}.\n\n", place(report));
  TextTable table = {kHeader};
  for (const StepRow& r : report.rows) {
    if (r.timed()) table.push_back(cells(r));
  }
  text += markdown_table(table, kLeft);
  for (const StepRow& r : report.rows) {
    if (!r.timed()) text += fmt::format("\n{} {}: {}.\n", r.size.name, r.variant_set(), why_not(r));
  }
  for (const StepRow& r : report.rows) {
    if (!r.timed() || !r.split) continue;
    text += fmt::format("\n{}, {}:\n\n", r.size.name, r.variant_set());
    text += markdown_table(split_table(r), 1);
    if (report.kernels == 0) continue;
    text += fmt::format("\n{}", markdown_table(kernel_table(r, report.kernels), 2));
  }
  return text + studies_page("bench step", rows_of(step_result_lines(report)), PageFormat::markdown);
}

std::string step_csv(const BenchStepReport& report) {
  std::string text =
      "size,mode,device,dtype,batch,ctx,vocab,variant_set,gate,graph,samples,mean_ms,p50_ms,std_ms,p95_ms,"
      "min_ms,tokens_per_s,tflops,floor_ms,peak_bytes,predicted_peak_bytes,first_step_ms,forward_ms,backward_"
      "ms,"
      "optimizer_ms,predicted_ms,verdict\n";
  for (const StepRow& r : report.rows) {
    text += fmt::format("{},{},{},{},{},{},{},\"{}\",{},", r.size.name, name_of(r.spec.mode), report.device,
                        name_of(r.spec.precision), r.spec.step.batch, r.spec.step.context, r.spec.model.vocab,
                        r.variant_set(), status_name(r));
    if (!r.timed()) {
      text += fmt::format(",,,,,,,,,,,{},,,,,,\n", r.predicted.peak_total);
      continue;
    }
    const Timing& t = r.timing;
    text += fmt::format("{},{},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g},{:.5g},{:.5g},{},{},{:.6g},",
                        r.captured ? "captured" : "off", t.samples.size(), ms(t.mean), ms(t.p50), ms(t.std),
                        ms(t.p95), ms(t.min), r.tokens_per_second(), r.flops_per_second() / 1e12,
                        r.floor_ms(), r.measured.peak_total, r.predicted.peak_total, ms(r.first));
    for (StepPhase p : {StepPhase::forward, StepPhase::backward, StepPhase::update}) {
      const Timing* phase = phase_timing(r, p);
      text += phase == nullptr ? "," : fmt::format("{:.6g},", ms(phase->p50));
    }
    text += fmt::format("{:.6g},{}\n", r.predicted_ms(), r.stable() ? "stable" : "noisy");
  }
  return text;
}

std::string step_json(const BenchStepReport& report) {
  ordered_json rows = ordered_json::array(), others = ordered_json::array();
  for (const StepRow& r : report.rows) (r.timed() ? rows : others).push_back(row_json(report, r));
  ordered_json page = {{"command", "bench step"},
                       {"device", report.device},
                       {"host", host_json(report)},
                       {"build_id", build_info().build_id},
                       {"ceilings", ceilings_json(report)},
                       {"rows", rows},
                       {"not_timed", others}};
  page.update(studies_json("bench step", rows_of(step_result_lines(report))));
  return dump(page, 2) + "\n";
}

std::vector<std::string> step_result_lines(const BenchStepReport& report) {
  std::vector<std::string> lines;
  for (const StepRow& r : report.rows) {
    if (r.status == StepRow::Status::failed) continue;
    lines.push_back(result_line("bench step", row_json(report, r), r.timing, host_json(report)));
  }
  return lines;
}

}  // namespace kiln::cli
