#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "kiln/bench_attention_pages.h"
#include "studies/format.h"
#include "kiln/study_tables.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;
using Status = AttentionRow::Status;

ordered_json pass_json(const AttentionRow& r, AttentionPass p) {
  const Timing& t = *r.timing(p);
  const auto& speedup = r.speedups[static_cast<std::size_t>(p)];
  const auto& versus = r.versus[static_cast<std::size_t>(p)];
  ordered_json pass = timing_json(t);
  pass.update({{"first_ms", ms(t.first)},
               {"flops", r.cell.least(p).flops},
               {"tflops", r.flops_per_second(p) / 1e12},
               {"of_ceiling", r.of_ceiling(p)},
               {"predicted_ms", r.predicted_ms(p)},
               {"floor_ms", r.floor_ms(p)},
               {"of_roofline", r.floor_ms(p) / ms(t.p50)},
               {"speedup_over_naive", speedup ? ordered_json(*speedup) : ordered_json(nullptr)}});
  if (versus)
    pass.update({{"speedup_p", versus->p},
                 {"speedup_verdict", name_of(versus->verdict)},
                 {"speedup_significant", versus->significant()}});
  return pass;
}

ordered_json row_json(const AttentionReport& report, const AttentionRow& r) {
  const AttentionCell& c = r.cell;
  ordered_json row = {{"op", "attention"},
                      {"table", report.table},
                      {"device", report.device},
                      {"dtype", kiln::name_of(c.dtype)},
                      {"batch", c.batch},
                      {"heads", c.heads},
                      {"seq", c.seq},
                      {"d", c.d},
                      {"causal", c.causal},
                      {"packed", c.packed},
                      {"variant", r.variant},
                      {"auto", r.automatic},
                      {"gate", r.gate()}};
  if (!r.tiles.empty()) row["tiles"] = r.tiles;
  if (!r.reason.empty()) row["reason"] = r.reason;
  if (r.status == Status::skipped) return row;
  ordered_json by_tensor = ordered_json::object();
  for (const NamedBytes& n : r.plan.needed) by_tensor[n.what] = n.bytes;
  row["predicted_before_backward_bytes"] = r.plan.memory.before_backward;
  row["predicted_peak_bytes"] = r.plan.memory.peak;
  row["needed_by_tensor"] = by_tensor;
  if (r.status == Status::no_memory) row["available_bytes"] = r.room;
  if (r.timed() || r.status == Status::wrong) {
    ordered_json checked = ordered_json::object();
    for (const auto& [key, value] : r.checked_at.all()) checked[key] = value;
    row.update({{"relative_error", r.error}, {"allowed_error", r.allowed}, {"checked_shape", checked}});
  }
  if (!r.timed()) return row;
  row["before_backward_bytes"] = r.measured.before_backward;
  row["peak_bytes"] = r.measured.peak;
  if (report.datasheet > 0)
    row["datasheet_floor_ms"] = 1e3 * c.least(AttentionPass::both).flops / report.datasheet;
  return row;
}

ordered_json clock_json(const AttentionClock& clock) {
  return {{"wait_each", clock.wait_each}, {"flush_bytes", clock.flush}};
}

}  // namespace

std::string attention_json(const AttentionReport& report) {
  ordered_json rows = ordered_json::array(), others = ordered_json::array(), laws = ordered_json::array();
  for (const AttentionRow& r : report.rows) {
    ordered_json row = row_json(report, r);
    if (r.timed()) {
      ordered_json passes = ordered_json::object();
      for (AttentionPass p : report.passes) passes[std::string(name_of(p))] = pass_json(r, p);
      row["passes"] = passes;
    }
    (r.timed() || r.status == Status::planned ? rows : others).push_back(row);
  }
  for (const MemoryLaw& law : report.laws)
    laws.push_back({{"variant", law.variant},
                    {"dtype", kiln::name_of(law.cell.dtype)},
                    {"d", law.cell.d},
                    {"bytes_x_seq", law.linear},
                    {"bytes_x_seq_squared", law.square}});
  ordered_json page = {{"command", report.command}, {"table", report.table}, {"device", report.device}};
  if (!report.planned) {
    page["host"] = host_json(report);
    page["ceilings"] = ceilings_json(report);
  }
  page["build_id"] = build_info().build_id;
  page["clock"] = clock_json(report.clock);
  page["rows"] = rows;
  page["not_timed"] = others;
  if (!laws.empty()) page["memory_before_backward"] = laws;
  page.update(studies_json(report.command, rows_of(attention_result_lines(report))));
  return dump(page, 2) + "\n";
}

std::vector<std::string> attention_result_lines(const AttentionReport& report) {
  std::vector<std::string> lines;
  for (const AttentionRow& r : report.rows) {
    if (r.status == Status::no_memory)
      lines.push_back(result_line(report.command, row_json(report, r), {}, host_json(report)));
    if (!r.timed()) continue;
    for (AttentionPass p : report.passes) {
      ordered_json row = row_json(report, r);
      row["pass"] = name_of(p);
      row["flush_bytes"] = report.clock.flush;
      row.update(pass_json(r, p));
      lines.push_back(result_line(report.command, row, *r.timing(p), host_json(report)));
    }
  }
  return lines;
}

}  // namespace kiln::cli
