#include "kiln/bench_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "studies/format.h"
#include "kiln/study_tables.h"
#include "rows/result_log.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

double giga(double n) { return n / 1e9; }

bool timed(const BenchRow& r) { return r.status == BenchRow::Status::timed; }

constexpr const char* kCutNote = "results were checked at the smaller sizes named, not at this shape";

std::string ceilings_line(const BenchReport& report) {
  std::string line = fmt::format("copy {} GB/s read+write", digits(giga(report.copy)));
  for (const NamedRate& f : report.flops)
    line += fmt::format(", {} {} GFLOP/s", f.name, digits(giga(f.per_second)));
  return line;
}

std::string place(const BenchReport& report) {
  return report.device == "cpu" ? fmt::format("cpu ({}), {} thread{}, {}", report.device_name, report.threads,
                                              report.threads == 1 ? "" : "s", report.isa)
                                : fmt::format("{} ({})", report.device, report.device_name);
}

const std::vector<std::string> kHeader = {"pass", "variant", "checked at",   "rel error", "ms p50",
                                          "p20",  "p80",     "predicted ms", "floor ms",  "of roofline",
                                          "GB/s", "GFLOP/s", "bound",        "of bound",  "vs naive"};
constexpr std::size_t kLeft = 3;  // columns of words

bool checked_in_full(const BenchRow& r) { return r.checked_at == r.shape; }

// "this size", or the sizes that were cut down for the check: "rows=64".
std::string checked_at(const BenchRow& r) {
  std::string cut;
  for (const auto& [key, value] : r.checked_at.all()) {
    if (value != r.shape[key]) cut += fmt::format("{}{}={}", cut.empty() ? "" : " ", key, value);
  }
  return cut.empty() ? "this size" : cut;
}

std::vector<std::string> cells(const BenchRow& r) {
  return {r.form,
          r.variant,
          checked_at(r),
          fmt::format("{:.1e}", r.error),
          digits(ms(r.timing.p50)),
          digits(ms(r.timing.p20)),
          digits(ms(r.timing.p80)),
          digits(ms(r.predicted)),
          digits(ms(r.floor)),
          fmt::format("{:.0f} %", 100 * r.of_roofline()),
          digits(giga(r.bytes_per_second())),
          digits(giga(r.flops_per_second())),
          r.bound,
          fmt::format("{:.0f} %", 100 * r.ratio),
          r.versus    ? str(*r.versus)
          : r.speedup ? fmt::format("{:.2f}x", *r.speedup)
                      : "-"};
}

// Rows of one shape and dtype stand together, in the order they were run.
std::vector<std::vector<const BenchRow*>> groups(const BenchReport& report) {
  std::vector<std::vector<const BenchRow*>> all;
  for (const BenchRow& r : report.rows) {
    if (all.empty() || all.back().front()->dtype != r.dtype || !(all.back().front()->shape == r.shape))
      all.emplace_back();
    all.back().push_back(&r);
  }
  return all;
}

std::string title(const BenchReport& report, const BenchRow& first) {
  return fmt::format("{}  {}  {}", report.op, first.shape.str(), name_of(first.dtype));
}

// As far in as the remarks below it.
std::string indented(const std::string& text) {
  std::string out;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = text.find('\n', from) + 1;
    out += "  " + text.substr(from, end - from);
    from = end;
  }
  return out;
}

// Every timed row, with the shape and the dtype in front.
TextTable whole_table(const BenchReport& report) {
  std::vector<std::string> header = {"shape", "dtype"};
  header.insert(header.end(), kHeader.begin(), kHeader.end());
  TextTable table = {header};
  for (const BenchRow& r : report.rows) {
    if (!timed(r)) continue;
    std::vector<std::string> line = {r.shape.str(), std::string(name_of(r.dtype))};
    for (std::string& cell : cells(r)) line.push_back(std::move(cell));
    table.push_back(std::move(line));
  }
  return table;
}

std::string variant_on(const BenchRow& r) { return fmt::format("{} ({})", r.variant, r.device); }

ordered_json shape_json(const BenchShape& shape) {
  ordered_json sizes = ordered_json::object();
  for (const auto& [key, value] : shape.all()) sizes[key] = value;
  return sizes;
}

// Times in ms, rates per second.
ordered_json row_json(const BenchReport& report, const BenchRow& r) {
  ordered_json row = {{"op", report.op},
                      {"variant", r.variant},
                      {"device", r.device},
                      {"dtype", name_of(r.dtype)},
                      {"shape", shape_json(r.shape)}};
  if (!timed(r)) {
    row["gate"] = r.status == BenchRow::Status::wrong       ? "failed"
                  : r.status == BenchRow::Status::no_memory ? "no memory"
                                                            : "not run";
    row["reason"] = r.reason;
    if (r.status == BenchRow::Status::wrong) {
      row["relative_error"] = r.error;
      row["allowed_error"] = r.allowed;
    }
    return row;
  }
  const Timing& t = r.timing;
  const bool copy = r.bound == "copy";
  row.update({{"pass", r.form},
              {"gate", "passed"},
              {"relative_error", r.error},
              {"allowed_error", r.allowed},
              {"checked_shape", shape_json(r.checked_at)},
              {"checked_at_full_shape", checked_in_full(r)},
              {"warmups", t.warmups},
              {"samples", t.samples.size()},
              {"unit", "ms"},
              {"p50", ms(t.p50)},
              {"p20", ms(t.p20)},
              {"p80", ms(t.p80)},
              {"p95", ms(t.p95)},
              {"min", ms(t.min)},
              {"mean", ms(t.mean)},
              {"std", ms(t.std)},
              {"first", ms(t.first)},
              {"noise", t.noise()},
              {"predicted_ms", ms(r.predicted)},
              {"floor_ms", ms(r.floor)},
              {"of_roofline", r.of_roofline()},
              {"bytes", r.cost.bytes},
              {"flops", r.cost.flops},
              {"gb_per_s", giga(r.bytes_per_second())},
              {"gflop_per_s", giga(r.flops_per_second())},
              {"bound", r.bound},
              {"bound_unit", copy ? "GB/s" : "GFLOP/s"},
              {"achieved", giga(r.achieved)},
              {"ceiling", giga(r.ceiling)},
              {"ratio", r.ratio},
              {"fits_in_cache", r.in_cache},
              {"speedup_over_naive", r.speedup ? ordered_json(*r.speedup) : ordered_json(nullptr)}});
  const Interval mean = confidence_95(t.samples);
  row.update({{"ci95_low", ms(mean.low)},
              {"ci95_high", ms(mean.high)},
              {"verdict", t.stable() ? "stable" : "noisy"}});
  if (r.versus)
    row.update({{"speedup_p", r.versus->p},
                {"speedup_verdict", name_of(r.versus->verdict)},
                {"speedup_significant", r.versus->significant()}});
  return row;
}

}  // namespace

std::string bench_text(const BenchReport& report) {
  std::string text = fmt::format("{}\nceilings measured here: {}\n", place(report), ceilings_line(report));
  for (const auto& group : groups(report)) {
    text += fmt::format("\n{}\n", title(report, *group.front()));
    std::vector<std::vector<std::string>> table = {kHeader};
    std::string remarks;
    for (const BenchRow* r : group) {
      if (timed(*r)) {
        table.push_back(cells(*r));
        const std::string noise = r->timing.noise();
        if (!noise.empty()) remarks += fmt::format("  note     {} {}: {}\n", r->form, r->variant, noise);
        if (r->in_cache && r->bound == "copy" && r->ratio > 1)
          remarks += fmt::format("  note     {} {}: fits in the cache, so memory does not bound it\n",
                                 r->form, r->variant);
      } else {
        remarks += fmt::format("  {} {}: {}\n",
                               r->status == BenchRow::Status::wrong       ? "WRONG   "
                               : r->status == BenchRow::Status::no_memory ? "OOM     "
                                                                          : "skipped ",
                               variant_on(*r), r->reason);
      }
    }
    if (table.size() > 1) {
      text += indented(aligned(table, kLeft));
      if (!checked_in_full(*group.front())) text += fmt::format("  note     {}\n", kCutNote);
    }
    text += remarks;
  }
  return text + studies_page("bench op", rows_of(result_lines(report, "bench op")), PageFormat::text);
}

std::string bench_markdown(const BenchReport& report) {
  std::string text =
      fmt::format("{}; ceilings measured in the same process: {}.\n\n", place(report), ceilings_line(report));
  text += markdown_table(whole_table(report), kLeft + 2);
  if (std::any_of(report.rows.begin(), report.rows.end(),
                  [](const BenchRow& r) { return timed(r) && !checked_in_full(r); }))
    text += fmt::format("\nWhere `checked at` names sizes, {}.\n", kCutNote);
  for (const BenchRow& r : report.rows) {
    if (!timed(r))
      text += fmt::format("\n{} {} {}: {}\n", variant_on(r), r.shape.str(), name_of(r.dtype), r.reason);
  }
  return text + studies_page("bench op", rows_of(result_lines(report, "bench op")), PageFormat::markdown);
}

std::string bench_latex(const BenchReport& report) {
  std::string text =
      fmt::format("% {}; ceilings measured in the same process: {}\n", place(report), ceilings_line(report));
  text += latex_table(whole_table(report), kLeft + 2);
  for (const BenchRow& r : report.rows) {
    if (!timed(r))
      text += remark(fmt::format("{} {} {}: {}", variant_on(r), r.shape.str(), name_of(r.dtype), r.reason),
                     PageFormat::latex);
  }
  return text + studies_page("bench op", rows_of(result_lines(report, "bench op")), PageFormat::latex);
}

std::string bench_page(const BenchReport& report, PageFormat format) {
  return PageForms<BenchReport>{bench_text, bench_markdown, bench_csv, bench_latex, bench_json}(report,
                                                                                                format);
}

std::string bench_csv(const BenchReport& report) {
  std::string text =
      "op,variant,device,dtype,shape,pass,samples,p50_ms,p20_ms,p80_ms,p95_ms,min_ms,mean_ms,std_ms,bytes,"
      "flops,"
      "gb_per_s,gflop_per_s,bound,ceiling,ratio,relative_error,checked_shape,speedup_over_naive,predicted_ms,"
      "floor_ms,of_roofline,verdict\n";
  for (const BenchRow& r : report.rows) {
    if (!timed(r)) continue;
    const Timing& t = r.timing;
    text +=
        fmt::format("{},{},{},{},\"{}\",{},{},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g},", report.op,
                    r.variant, r.device, name_of(r.dtype), r.shape.str(), r.form, t.samples.size(), ms(t.p50),
                    ms(t.p20), ms(t.p80), ms(t.p95), ms(t.min), ms(t.mean), ms(t.std));
    text += fmt::format("{:.0f},{:.0f},{:.5g},{:.5g},{},{:.5g},{:.4f},{:.3e},\"{}\",{},", r.cost.bytes,
                        r.cost.flops, giga(r.bytes_per_second()), giga(r.flops_per_second()), r.bound,
                        giga(r.ceiling), r.ratio, r.error, r.checked_at.str(),
                        r.speedup ? fmt::format("{:.4g}", *r.speedup) : "");
    text += fmt::format("{:.6g},{:.6g},{:.4f},{}\n", ms(r.predicted), ms(r.floor), r.of_roofline(),
                        t.stable() ? "stable" : "noisy");
  }
  return text;
}

std::string bench_json(const BenchReport& report) {
  ordered_json rows = ordered_json::array(), others = ordered_json::array();
  for (const BenchRow& r : report.rows) (timed(r) ? rows : others).push_back(row_json(report, r));
  ordered_json page = {{"command", "bench op"},
                       {"op", report.op},
                       {"device", report.device},
                       {"host", host_json(report)},
                       {"build_id", build_info().build_id},
                       {"ceilings", ceilings_json(report)},
                       {"rows", rows},
                       {"not_timed", others}};
  page.update(studies_json("bench op", rows_of(result_lines(report, "bench op"))));
  return dump(page, 2) + "\n";
}

std::vector<std::string> result_lines(const BenchReport& report, const std::string& command) {
  std::vector<std::string> lines;
  for (const BenchRow& r : report.rows) {
    if (!timed(r) && r.status != BenchRow::Status::no_memory) continue;
    lines.push_back(result_line(command, row_json(report, r), r.timing, host_json(report)));
  }
  return lines;
}

}  // namespace kiln::cli
