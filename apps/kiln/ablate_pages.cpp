#include "kiln/ablate_pages.h"

#include <fmt/format.h>

#include "base/build_info.h"
#include "studies/format.h"
#include "kiln/study_tables.h"
#include "studies/ablation/ablation_tables.h"
#include "report/result_table.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

std::string tables(const AblateReport& r, PageFormat format) {
  const std::vector<AblationLine> lines = ablation_lines(r.rows);
  std::string text =
      remark(place_line(r.device, r.device_name, r.threads, r.isa, r.copy, r.flops,
                        r.ceilings_stored ? "stored with the baseline's row" : "measured here"),
             format);
  text +=
      heading("one optimization at a time, then added up: a whole training step, batches with it", format);
  text += written(speedup_table(lines), 1, format);
  text += heading("memory of the step, in MiB", format) + written(ablation_memory_table(lines), 1, format);
  text += heading("the gate: how far off the baseline, relative, and how far it may be", format);
  text += written(gate_table(lines), 3, format);
  if (format == PageFormat::text) text += "\n";
  for (const std::string& line : ablation_sentences(lines)) text += remark(line, format);
  for (const std::string& line : r.remarks) text += remark(line, format);
  return text;
}

std::string ablate_text(const AblateReport& r) { return tables(r, PageFormat::text); }
std::string ablate_markdown(const AblateReport& r) { return tables(r, PageFormat::markdown); }
std::string ablate_latex(const AblateReport& r) { return tables(r, PageFormat::latex); }

// One table for a spreadsheet: every figure of a row on its line.
std::string ablate_csv(const AblateReport& r) {
  TextTable table = {{"group",
                      "switch",
                      "gate",
                      "p50_ms",
                      "mean_ms",
                      "ci95_low_ms",
                      "ci95_high_ms",
                      "verdict",
                      "speedup",
                      "p",
                      "significant",
                      "tokens_per_s",
                      "predicted_ms",
                      "floor_ms",
                      "peak_bytes",
                      "predicted_peak_bytes",
                      "floor_bytes",
                      "logits_error",
                      "gradients_error",
                      "loss_error",
                      "reason"}};
  for (const AblationLine& l : ablation_lines(r.rows)) {
    const bool compared = l.timed() && l.speed.ratio > 0;
    std::vector<std::string> cells;
    for (const char* key :
         {"group", "switch", "gate", "p50_ms", "mean_ms", "ci95_low_ms", "ci95_high_ms", "verdict"})
      cells.push_back(word_at(l.row, key));
    cells.push_back(compared ? fmt::format("{:.6g}", l.speed.ratio) : "");
    cells.push_back(compared ? fmt::format("{:.3g}", l.speed.p) : "");
    cells.emplace_back(!compared ? "" : l.speed.significant() ? "yes" : "no");
    for (const char* key :
         {"tokens_per_s", "predicted_ms", "floor_ms", "peak_bytes", "predicted_peak_bytes", "floor_bytes"})
      cells.push_back(word_at(l.row, key));
    const nlohmann::json errors = l.row.value("gate_errors", nlohmann::json::object());
    for (const char* key : {"logits", "gradients", "loss"}) cells.push_back(word_at(errors, key));
    cells.push_back(word_at(l.row, "reason"));
    table.push_back(std::move(cells));
  }
  return csv_table(table);
}

std::string ablate_json(const AblateReport& r) {
  const std::vector<AblationLine> lines = ablation_lines(r.rows);
  ordered_json rows = ordered_json::array(), others = ordered_json::array();
  for (const AblationLine& l : lines) (l.timed() ? rows : others).push_back(ordered_json(l.row));
  return dump({{"command", "ablate"},
               {"device", r.device},
               {"host", host_json(r)},
               {"build_id", build_info().build_id},
               {"ceilings", ceilings_json(r)},
               {"ceilings_stored", r.ceilings_stored},
               {"rows", rows},
               {"not_timed", others},
               {"speedups", speedups_json(lines)},
               {"conclusions", ablation_sentences(lines)},
               {"remarks", r.remarks},
               {"stopped", r.stopped()}},
              2) +
         "\n";
}

}  // namespace

std::string ablate_page(const AblateReport& report, PageFormat format) {
  return PageForms<AblateReport>{ablate_text, ablate_markdown, ablate_csv, ablate_latex, ablate_json}(report,
                                                                                                      format);
}

}  // namespace kiln::cli
