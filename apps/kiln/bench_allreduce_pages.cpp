#include <fmt/format.h>

#include <map>

#include "base/build_info.h"
#include "kiln/bench_allreduce.h"
#include "kiln/bench_charts.h"
#include "studies/format.h"
#include "report/charts/line_chart.h"
#include "report/result_table.h"

namespace kiln::cli {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string place(const BenchAllReduceReport& r) {
  return place_line(r.device, r.device_name, r.threads, r.isa, r.copy, {});
}

TextTable row_table(const BenchAllReduceReport& report) {
  TextTable table = {{"transport", "algorithm", "dtype", "bound", "ranks", "size", "ms", "p20", "p80",
                      "rank min", "rank max", "alg GB/s", "bus GB/s", "predicted ms", "floor ms"}};
  for (const ordered_json& row : report.rows) {
    const json r = json::parse(row.dump());
    const auto word = [&](const char* key) { return word_at(r, key); };
    std::vector<std::string> line = {word("transport"), word("algorithm"),
                                     word("dtype"),     r.contains("bound") ? word("bound") : "-",
                                     word("ranks"),     word("size")};
    if (r.value("gate", "") != "passed") {
      line.push_back(r.value("gate", ""));
      line.resize(table.front().size(), "-");
    } else {
      for (const char* key : {"p50_ms", "p20_ms", "p80_ms", "rank_min_ms", "rank_max_ms",
                              "algorithm_gb_per_s", "bus_gb_per_s", "predicted_ms", "floor_ms"})
        line.push_back(figure_at(r, key));
    }
    table.push_back(std::move(line));
  }
  return table;
}

TextTable fit_table(const BenchAllReduceReport& report) {
  TextTable table = {{"transport", "algorithm", "dtype", "verdict", "ranks", "latency us", "bus GB/s", "R2"}};
  for (const AllReduceFit& f : report.fits)
    table.push_back({f.transport, f.algorithm, f.dtype, f.fit.verdict(), std::to_string(f.ranks),
                     digits(1e6 * f.fit.alpha), digits(f.fit.bus_bandwidth(f.ranks) / 1e9),
                     fmt::format("{:.3f}", f.fit.r_squared)});
  return table;
}

std::string skipped_lines(const BenchAllReduceReport& report) {
  std::string text;
  for (const ordered_json& r : report.rows) {
    if (r.value("gate", "") != "passed")
      text += fmt::format("\n{} {}, {} ranks, {}: {}", r.value("transport", ""), r.value("algorithm", ""),
                          r.value("ranks", 1), r.value("size", ""), r.value("reason", ""));
  }
  return text.empty() ? text : text + "\n";
}

ordered_json fits_json(const BenchAllReduceReport& report) {
  ordered_json fits = ordered_json::array();
  for (const AllReduceFit& f : report.fits)
    fits.push_back({{"transport", f.transport},
                    {"algorithm", f.algorithm},
                    {"dtype", f.dtype},
                    {"ranks", f.ranks},
                    {"latency_us", 1e6 * f.fit.alpha},
                    {"seconds_per_byte", f.fit.beta},
                    {"step_latency_us", 1e6 * f.fit.step_latency(f.ranks)},
                    {"bus_gb_per_s", f.fit.bus_bandwidth(f.ranks) / 1e9},
                    {"half_bytes", f.fit.half_bytes()},
                    {"r_squared", f.fit.r_squared},
                    {"points", f.fit.points},
                    {"verdict", f.fit.verdict()}});
  return fits;
}

ordered_json page_json(const BenchAllReduceReport& report) {
  ordered_json rows = ordered_json::array(), others = ordered_json::array();
  for (ordered_json row : report.rows) {
    row.erase("raw_samples");
    (row.value("gate", "") == "passed" ? rows : others).push_back(std::move(row));
  }
  return {{"command", "bench allreduce"},
          {"device", report.device},
          {"host", host_json(report)},
          {"build_id", build_info().build_id},
          {"copy_gb_per_s", report.copy / 1e9},
          {"rows", rows},
          {"not_timed", others},
          {"fits", fits_json(report)}};
}

}  // namespace

std::string allreduce_page(const BenchAllReduceReport& report, PageFormat format) {
  if (format == PageFormat::json) return dump(page_json(report), 2) + "\n";
  const TextTable rows = row_table(report);
  if (format == PageFormat::csv) return csv_table(rows);
  std::string text = fmt::format("{}\n\n{}", place(report), written(rows, 4, format));
  text += skipped_lines(report);
  if (!report.fits.empty()) text += "\n" + written(fit_table(report), 4, format);
  return text;
}

void write_allreduce_charts(const std::string& out, const BenchAllReduceReport& report) {
  std::map<std::string, std::vector<const ordered_json*>> by_dtype;
  for (const ordered_json& r : report.rows) {
    if (r.value("gate", "") == "passed") by_dtype[r.value("dtype", "")].push_back(&r);
  }
  std::vector<NamedPicture> pictures;
  for (const auto& [dtype, rows] : by_dtype) {
    LineChart chart;
    chart.title = "All-reduce: time over size";
    chart.below_title =
        fmt::format("{} {}, median of the slowest rank; dashed: fitted latency + bytes / bandwidth",
                    report.device_name, dtype);
    chart.x_label = "bytes";
    chart.y_label = "ms";
    std::map<std::string, std::size_t> lines;
    std::map<double, std::string> ticks;
    for (const ordered_json* r : rows) {
      const std::string name =
          fmt::format("{} {} {}", r->value("transport", ""), r->value("algorithm", ""), r->value("ranks", 1));
      if (!lines.contains(name)) {
        lines[name] = chart.lines.size();
        const std::size_t colour = chart.lines.size() / 2;
        chart.lines.push_back({name, colour, LineStyle::measured, {}});
        chart.lines.push_back({"", colour, LineStyle::predicted, {}});
      }
      const double x = (*r)["bytes"].get<double>();
      chart.lines[lines[name]].points.push_back({x, (*r)["p50_ms"].get<double>()});
      if (r->contains("predicted_ms"))
        chart.lines[lines[name] + 1].points.push_back({x, (*r)["predicted_ms"].get<double>()});
      ticks[x] = r->value("size", "");
    }
    for (const auto& [at, name] : ticks) chart.x_ticks.push_back({at, name});
    pictures.push_back({fmt::format("time-over-size-{}", dtype), line_chart_svg(chart)});
  }
  for (const std::string& path : write_pictures(out, "allreduce", pictures))
    fmt::print(stderr, "wrote {}\n", path);
}

}  // namespace kiln::cli
