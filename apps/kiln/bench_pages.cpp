#include "kiln/bench_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "kiln/bench_format.h"
#include "report/result_log.h"

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

const std::vector<std::string> kHeader = {"pass",    "variant", "checked at", "rel error",
                                          "ms p50",  "p20",     "p80",        "GB/s",
                                          "GFLOP/s", "bound",   "of bound",   "vs naive"};

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
          digits(giga(r.bytes_per_second())),
          digits(giga(r.flops_per_second())),
          r.bound,
          fmt::format("{:.0f} %", 100 * r.ratio),
          r.speedup ? fmt::format("{:.2f}x", *r.speedup) : "-"};
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

std::string aligned(const std::vector<std::vector<std::string>>& table) {
  std::vector<std::size_t> width(table.front().size());
  for (const auto& line : table) {
    for (std::size_t i = 0; i < line.size(); ++i) width[i] = std::max(width[i], line[i].size());
  }
  std::string text;
  for (const auto& line : table) {
    std::string row = " ";
    for (std::size_t i = 0; i < line.size(); ++i)
      row += i < 3 ? fmt::format(" {:<{}}", line[i], width[i]) : fmt::format("  {:>{}}", line[i], width[i]);
    text += row + "\n";
  }
  return text;
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
    row["gate"] = r.status == BenchRow::Status::wrong ? "failed" : "not run";
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
        remarks +=
            fmt::format("  {} {}: {}\n", r->status == BenchRow::Status::wrong ? "WRONG   " : "skipped ",
                        variant_on(*r), r->reason);
      }
    }
    if (table.size() > 1) {
      text += aligned(table);
      if (!checked_in_full(*group.front())) text += fmt::format("  note     {}\n", kCutNote);
    }
    text += remarks;
  }
  return text;
}

std::string bench_markdown(const BenchReport& report) {
  std::string text =
      fmt::format("{}; ceilings measured in the same process: {}.\n\n", place(report), ceilings_line(report));
  text += fmt::format("| shape | dtype | {} |\n|---|---|{}\n", fmt::join(kHeader, " | "),
                      "---|---|---|---:|---:|---:|---:|---:|---:|---|---:|---:|");
  for (const BenchRow& r : report.rows) {
    if (timed(r))
      text += fmt::format("| {} | {} | {} |\n", r.shape.str(), name_of(r.dtype), fmt::join(cells(r), " | "));
  }
  if (std::any_of(report.rows.begin(), report.rows.end(),
                  [](const BenchRow& r) { return timed(r) && !checked_in_full(r); }))
    text += fmt::format("\nWhere `checked at` names sizes, {}.\n", kCutNote);
  for (const BenchRow& r : report.rows) {
    if (!timed(r))
      text += fmt::format("\n{} {} {}: {}\n", variant_on(r), r.shape.str(), name_of(r.dtype), r.reason);
  }
  return text;
}

std::string bench_csv(const BenchReport& report) {
  std::string text =
      "op,variant,device,dtype,shape,pass,samples,p50_ms,p20_ms,p80_ms,p95_ms,min_ms,mean_ms,std_ms,bytes,"
      "flops,"
      "gb_per_s,gflop_per_s,bound,ceiling,ratio,relative_error,checked_shape,speedup_over_naive\n";
  for (const BenchRow& r : report.rows) {
    if (!timed(r)) continue;
    const Timing& t = r.timing;
    text +=
        fmt::format("{},{},{},{},\"{}\",{},{},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g},", report.op,
                    r.variant, r.device, name_of(r.dtype), r.shape.str(), r.form, t.samples.size(), ms(t.p50),
                    ms(t.p20), ms(t.p80), ms(t.p95), ms(t.min), ms(t.mean), ms(t.std));
    text += fmt::format("{:.0f},{:.0f},{:.5g},{:.5g},{},{:.5g},{:.4f},{:.3e},\"{}\",{}\n", r.cost.bytes,
                        r.cost.flops, giga(r.bytes_per_second()), giga(r.flops_per_second()), r.bound,
                        giga(r.ceiling), r.ratio, r.error, r.checked_at.str(),
                        r.speedup ? fmt::format("{:.4g}", *r.speedup) : "");
  }
  return text;
}

std::string bench_json(const BenchReport& report) {
  ordered_json rows = ordered_json::array(), others = ordered_json::array();
  for (const BenchRow& r : report.rows) (timed(r) ? rows : others).push_back(row_json(report, r));
  const ordered_json page = {{"command", "bench op"},
                             {"op", report.op},
                             {"device", report.device},
                             {"host", host_json(report)},
                             {"build_id", build_info().build_id},
                             {"ceilings", ceilings_json(report)},
                             {"rows", rows},
                             {"not_timed", others}};
  return dump(page, 2) + "\n";
}

std::vector<std::string> result_lines(const BenchReport& report, const std::string& command) {
  std::vector<std::string> lines;
  for (const BenchRow& r : report.rows) {
    if (!timed(r)) continue;
    lines.push_back(result_line(command, row_json(report, r), r.timing, host_json(report)));
  }
  return lines;
}

}  // namespace kiln::cli
