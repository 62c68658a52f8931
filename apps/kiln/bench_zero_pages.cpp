#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "studies/format.h"
#include "studies/ranks/zero.h"
#include "kiln/study_tables.h"
#include "report/charts/line_chart.h"
#include "studies/ranks/overlap_charts.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

std::string mib(double bytes) { return fine_mib(bytes); }
std::string mib(std::optional<double> bytes) { return bytes ? fine_mib(*bytes) : "-"; }
std::string peak(const MemoryStats& m) { return fine_mib(static_cast<double>(m.peak_total)); }

const RanksTiming& seen(const ZeroRow& r) { return r.measured ? *r.measured : r.planned; }

std::string saving(const BenchZeroReport& report, const ZeroRow& r) {
  const ZeroRow* whole = report.unsharded(r.ranks);
  if (whole == nullptr) return "-";
  return fmt::format("{:.0f} %", 100 * (1 - r.predicted_state() / whole->predicted_state()));
}

// Peaks so far, of all tags together; state is what stays between steps.
TextTable memory_table(const BenchZeroReport& report) {
  TextTable table = {{"stage", "peaks", "ranks", "after init MiB", "before step", "after step",
                      "predicted after step", "state MiB", "predicted", "floor", "saved"}};
  for (const ZeroRow& r : report.rows) {
    const MemoryMoments& m = seen(r).memory;
    table.push_back({r.stage, r.measured ? "measured" : "predicted", fmt::format("{}", r.ranks),
                     peak(m.after_init), peak(m.before_step), peak(m.after_step),
                     peak(r.planned.memory.after_step), mib(r.state()), mib(r.predicted_state()),
                     mib(r.theory.state()), saving(report, r)});
  }
  return table;
}

// By what it is for: in use between steps of weights, gradients and moments; at its peak of the rest.
TextTable tag_table(const BenchZeroReport& report) {
  TextTable table = {
      {"stage", "ranks", "param MiB", "master", "grad", "optim", "activation", "workspace", "comm", "data"}};
  for (const ZeroRow& r : report.rows) {
    const MemoryStats& m = seen(r).memory.after_step;
    std::vector<std::string> line = {r.stage, fmt::format("{}", r.ranks)};
    for (const Tag t : {Tag::param, Tag::master, Tag::grad, Tag::optim})
      line.push_back(mib(static_cast<double>(m.live[t])));
    for (const Tag t : {Tag::activation, Tag::workspace, Tag::comm, Tag::data})
      line.push_back(mib(static_cast<double>(m.peak[t])));
    table.push_back(std::move(line));
  }
  return table;
}

TextTable traffic_table(const BenchZeroReport& report) {
  TextTable table = {{"stage", "ranks", "step ms p50", "vs stage 0", "predicted ms", "floor ms", "sent MiB",
                      "predicted", "floor", "paper"}};
  for (const ZeroRow& r : report.rows) {
    const ZeroRow* whole = report.unsharded(r.ranks);
    const auto us = [](std::optional<double> x) { return x ? digits(*x / 1e3) : "-"; };
    table.push_back({r.stage, fmt::format("{}", r.ranks),
                     r.measured ? digits(ms(r.measured->timing.p50)) : "-",
                     r.measured && whole != nullptr && whole->measured
                         ? fmt::format("{:.2f}x", whole->measured->timing.p50 / r.measured->timing.p50)
                         : "-",
                     us(report.predicted_us(r)), us(report.floor_us(r)),
                     r.measured ? mib(sent_bytes(r.measured->ledger, r.ranks)) : "-",
                     mib(sent_bytes(r.planned.ledger, r.ranks)), mib(r.theory.sent),
                     fmt::format("{:g} P (N-1)/N", r.theory.volume)});
  }
  return table;
}

ordered_json moments_json(const MemoryMoments& m) {
  ordered_json j = ordered_json::object();
  const auto add = [&](const char* name, const MemoryStats& s) {
    j[name] = {{"peak_bytes", s.peak_total},
               {"live_bytes", s.live_total},
               {"peak_by_tag", tags_json(s.peak)},
               {"live_by_tag", tags_json(s.live)}};
  };
  add("after_init", m.after_init);
  add("before_step", m.before_step);
  add("after_step", m.after_step);
  return j;
}

ordered_json row_json(const BenchZeroReport& report, const ZeroRow& r) {
  const BenchZeroRequest& q = report.request;
  ordered_json row = {{"size", q.size.name},
                      {"stage", r.stage},
                      {"strategy", strategy_of_stage(r.stage)},
                      {"device", report.device},
                      {"dtype", name_of(q.precision)},
                      {"preset", q.preset},
                      {"batch", q.batch * r.ranks},
                      {"ctx", q.context},
                      {"ranks", r.ranks},
                      {"transport", q.transport},
                      {"link", q.link ? "modelled" : "none"},
                      {"bucket_mb", q.bucket_mb},
                      {"params", report.parameters},
                      {"gate", !r.measured       ? "predicted"
                               : r.wrong.empty() ? "passed"
                                                 : "failed"}};
  if (!r.wrong.empty()) row["reason"] = r.wrong;
  if (q.link) row["link_model"] = q.link->str();
  if (!r.measured) row["reason"] = r.not_measured;
  row["predicted_memory"] = moments_json(r.planned.memory);
  row["predicted_peak_bytes"] = r.planned.memory.after_step.peak_total;
  row["predicted_state_bytes"] = r.predicted_state();
  row["theory_state_bytes"] = r.theory.state();
  row["predicted_sent_bytes"] = sent_bytes(r.planned.ledger, r.ranks);
  row["theory_sent_bytes"] = r.theory.sent;
  row["paper_volume"] = r.theory.volume;
  if (const ZeroRow* whole = report.unsharded(r.ranks))
    row["state_saved"] = 1 - r.predicted_state() / whole->predicted_state();
  if (!r.measured) return row;
  row.update(timing_json(r.measured->timing));
  row["memory"] = moments_json(r.measured->memory);
  row["peak_bytes"] = r.measured->memory.after_step.peak_total;
  row["peak_by_tag"] = tags_json(r.measured->memory.after_step.peak);
  row["state_bytes"] = *r.state();
  row["sent_bytes"] = sent_bytes(r.measured->ledger, r.ranks);
  const OverlapTotals t = totals_of(r.measured->ledger);
  row["communication_ms"] = t.communication / 1e3;
  row["exposed_ms"] = t.exposed / 1e3;
  row["compute_ms"] = ms(r.compute);
  if (const auto us = report.predicted_us(r)) row["predicted_ms"] = *us / 1e3;
  if (const auto us = report.floor_us(r)) row["floor_ms"] = *us / 1e3;
  return row;
}

std::string caption(const BenchZeroReport& r) {
  const BenchZeroRequest& q = r.request;
  const double millions = static_cast<double>(r.parameters) / 1e6;
  return fmt::format("{} ({} million parameters), batch {} on each rank, ctx {}, {}, {} ({}), {}",
                     q.size.name,
                     millions < 1000 ? fmt::format("{:.3g}", millions) : fmt::format("{:.0f}", millions),
                     q.batch, q.context, name_of(q.precision), q.transport, r.device,
                     q.link ? fmt::format("link=modelled ({})", q.link->str()) : "no link modelled");
}

std::string json_page(const BenchZeroReport& report) {
  ordered_json rows = ordered_json::array();
  for (const ZeroRow& r : report.rows) rows.push_back(row_json(report, r));
  return dump({{"command", "bench zero"},
               {"device", report.device},
               {"host", host_json(report)},
               {"build_id", build_info().build_id},
               {"rows", rows},
               {"stopped", report.stopped}},
              2) +
         "\n";
}

// A line of each kind for each stage, through its numbers of ranks.
std::vector<ChartLine> lines_of(const BenchZeroReport& report,
                                const std::function<ChartPoint(const ZeroRow&, LineStyle)>& point) {
  std::vector<ChartLine> lines;
  for (std::size_t s = 0; s < report.request.stages.size(); ++s) {
    const std::string& stage = report.request.stages[s];
    for (const LineStyle style : {LineStyle::measured, LineStyle::predicted, LineStyle::floor}) {
      ChartLine line;
      line.colour = s;
      line.style = style;
      if (style == LineStyle::predicted) line.name = fmt::format("stage {}", stage);
      for (const ZeroRow& r : report.rows) {
        if (r.stage == stage && (r.measured || style != LineStyle::measured))
          line.points.push_back(point(r, style));
      }
      if (!line.points.empty()) lines.push_back(std::move(line));
    }
  }
  return lines;
}

double state_in(const ZeroRow& r, LineStyle style) {
  const double bytes = style == LineStyle::measured    ? *r.state()
                       : style == LineStyle::predicted ? r.predicted_state()
                                                       : r.theory.state();
  return bytes / 0x1p20;
}

double sent_in(const ZeroRow& r, LineStyle style) {
  const double bytes = style == LineStyle::measured    ? sent_bytes(r.measured->ledger, r.ranks)
                       : style == LineStyle::predicted ? sent_bytes(r.planned.ledger, r.ranks)
                                                       : r.theory.sent;
  return bytes / 0x1p20;
}

// Of several ranks, as many as were measured.
std::vector<NamedLedger> steps_of_most_ranks(const BenchZeroReport& report) {
  int most = 1;
  for (const ZeroRow& r : report.rows) {
    if (r.measured) most = std::max(most, r.ranks);
  }
  std::vector<NamedLedger> steps;
  for (const ZeroRow& r : report.rows) {
    if (r.measured && most > 1 && r.ranks == most)
      steps.push_back({fmt::format("stage {}, {} ranks", r.stage, r.ranks), r.measured->ledger});
  }
  return steps;
}

}  // namespace

std::string zero_page(const BenchZeroReport& report, PageFormat format) {
  if (format == PageFormat::json) return json_page(report);
  if (format == PageFormat::csv) return written(memory_table(report), 2, format);
  std::string text = remark(caption(report), format);
  text += heading("memory of a rank: peaks so far, and what stays between steps", format) +
          written(memory_table(report), 2, format);
  text += heading("by what it is for: state as it stays, the rest at its peak", format) +
          written(tag_table(report), 1, format);
  text += heading("time of a step, and what a rank sends in it; floor: as the paper counts", format) +
          written(traffic_table(report), 1, format);
  for (const ZeroRow& r : report.rows) {
    if (!r.measured && report.request.measure)
      text += remark(fmt::format("stage {} of {} ranks: {}", r.stage, r.ranks, r.not_measured), format);
    if (!r.wrong.empty())
      text += remark(fmt::format("stage {} of {} ranks is WRONG: {}", r.stage, r.ranks, r.wrong), format);
  }
  if (report.stopped) text += remark("stopped before its last row", format);
  return text;
}

std::vector<std::string> zero_result_lines(const BenchZeroReport& report) {
  std::vector<std::string> lines;
  for (const ZeroRow& r : report.rows) {
    if (!r.wrong.empty()) continue;
    lines.push_back(result_line("bench zero", row_json(report, r), r.measured ? r.measured->timing : Timing{},
                                host_json(report)));
  }
  return lines;
}

std::vector<NamedPicture> zero_pictures(const BenchZeroReport& report) {
  LineChart over_ranks;
  over_ranks.title = "What a rank keeps between steps";
  over_ranks.below_title = caption(report);
  over_ranks.x_label = "ranks";
  over_ranks.y_label = "MiB of weights, gradients and moments";
  for (const int n : report.request.ranks)
    over_ranks.x_ticks.push_back({static_cast<double>(n), fmt::format("{}", n)});
  over_ranks.lines = lines_of(report, [](const ZeroRow& r, LineStyle style) {
    return ChartPoint{static_cast<double>(r.ranks), state_in(r, style)};
  });
  LineChart against = over_ranks;
  against.title = "Memory against communication: each line goes through the numbers of ranks";
  against.x_label = "MiB a rank sends in a step";
  against.x_ticks.clear();
  const double whole = static_cast<double>(report.parameters) * 4 / 0x1p20;
  for (const double times : {0.5, 1.0, 1.5, 2.0, 2.5, 3.0})
    against.x_ticks.push_back({times * whole, fmt::format("{:.3g}", times * whole)});
  against.lines = lines_of(report, [](const ZeroRow& r, LineStyle style) {
    return ChartPoint{sent_in(r, style), state_in(r, style)};
  });
  std::vector<NamedPicture> pictures = {{"memory-over-ranks", line_chart_svg(over_ranks)},
                                        {"memory-against-communication", line_chart_svg(against)}};
  if (const std::vector<NamedLedger> steps = steps_of_most_ranks(report); !steps.empty())
    pictures.push_back(
        {"overlap", overlap_svg(steps, "One step of rank 0, stage by stage", caption(report))});
  return pictures;
}

}  // namespace kiln::cli
