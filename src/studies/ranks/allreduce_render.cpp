#include <fmt/format.h>

#include <map>

#include "report/charts/line_chart.h"
#include "rows/row_outcome.h"
#include "rows/row_values.h"
#include "studies/chart_export.h"
#include "studies/ranks/allreduce.h"
#include "studies/ranks/columns.h"
#include "studies/roofline.h"

namespace kiln {
namespace {

// A row with the report it is of.
struct Line {
  const BenchAllReduceReport& report;
  const AllReduceRow& row;
};
using In = const Line&;

std::string name_of(ReductionOrder o) { return o == ReductionOrder::library ? "library" : "deterministic"; }

// A value of rows that were timed.
template <auto Get>
Json timed(const Line& l) {
  return l.row.passed() ? Json(Get(l.row)) : Json();
}

Json below_roofline(const AllReduceRow& r) {
  const double roofline = ms(r.roofline);
  const std::string_view why = why_below_roofline({.measured = ms(r.run.timing.p50),
                                                   .own = roofline,
                                                   .best = roofline,
                                                   .cached = r.in_cache ? 0 : roofline});
  return why.empty() ? Json() : Json(why);
}

const Schema<Line>& schema() {
  using Row = AllReduceRow;
  static const Schema<Line> kSchema = {
      {"transport", "transport", Unit::text, [](In l) { return Json(l.row.group.transport); }, Where::table},
      {"algorithm", "algorithm", Unit::text, [](In l) { return Json(l.row.group.algorithm); }, Where::table},
      {"device", "", Unit::text, [](In l) { return Json(l.report.device); }},
      {"dtype", "dtype", Unit::text, [](In l) { return Json(name_of(l.row.dtype)); }, Where::table},
      {"ranks", "ranks", Unit::text, [](In l) { return Json(l.row.group.ranks); }, Where::table},
      {"link", "", Unit::text, [](const Line&) { return Json("local"); }},
      {"size", "size", Unit::text, [](In l) { return Json(l.row.size_name()); }, Where::table},
      {"bytes", "", Unit::bytes, [](In l) { return Json(l.row.size.value); }},
      {"sums", "reduction", Unit::text, [](In l) { return Json(name_of(l.row.group.reduction)); },
       Where::differs},
      outcome_columns<Line>([](In l) { return outcome_json(l.row); }),
      timing_columns<Line>(timed<[](const Row& r) { return timing_json(r.run.timing); }>),
      {"rank_min_ms", "rank min", Unit::milliseconds,
       timed<[](const Row& r) { return ms(r.run.fastest_rank); }>, Where::wide},
      {"rank_max_ms", "rank max", Unit::milliseconds,
       timed<[](const Row& r) { return ms(r.run.slowest_rank); }>, Where::wide},
      {"algorithm_gb_per_s", "alg GB/s", Unit::number,
       timed<[](const Row& r) { return r.algorithm_rate() / 1e9; }>, Where::table},
      {"bus_gb_per_s", "bus GB/s", Unit::number, timed<[](const Row& r) { return r.bus_rate() / 1e9; }>,
       Where::table},
      {"fit_ms", "fit ms", Unit::milliseconds,
       [](In l) { return l.row.fit ? Json(ms(l.row.fit->seconds(l.row.bytes()))) : Json(); }, Where::table,
       "predicted_ms"},
      {"bound", "bound", Unit::text,
       [](In l) {
         if (!l.row.fit) return Json();
         return Json(l.row.fit->latency_bound(l.row.bytes()) ? "latency" : "bandwidth");
       },
       Where::table},
      {"roofline_ms", "roofline ms", Unit::milliseconds, timed<[](const Row& r) { return ms(r.roofline); }>,
       Where::table, "floor_ms"},
      {"of_roofline", "of roofline", Unit::percent,
       timed<[](const Row& r) { return r.roofline / r.run.timing.p50; }>, Where::wide, "of_floor",
       of_roofline_cell},
      {"below_roofline", "", Unit::text, timed<below_roofline>},
  };
  return kSchema;
}

const Schema<AllReduceFit>& fit_schema() {
  using Fit = AllReduceFit;
  static const Schema<Fit> kSchema = {
      {"transport", "transport", Unit::text, [](const Fit& f) { return Json(f.group.transport); },
       Where::table},
      {"algorithm", "algorithm", Unit::text, [](const Fit& f) { return Json(f.group.algorithm); },
       Where::table},
      {"dtype", "dtype", Unit::text, [](const Fit& f) { return Json(name_of(f.dtype)); }, Where::table},
      {"ranks", "ranks", Unit::text, [](const Fit& f) { return Json(f.group.ranks); }, Where::table},
      {"latency_us", "latency us", Unit::number, [](const Fit& f) { return Json(1e6 * f.fit.alpha); },
       Where::table},
      {"seconds_per_byte", "", Unit::number, [](const Fit& f) { return Json(f.fit.beta); }},
      {"step_latency_us", "", Unit::number,
       [](const Fit& f) { return Json(1e6 * f.fit.step_latency(f.group.ranks)); }},
      {"bus_gb_per_s", "bus GB/s", Unit::number,
       [](const Fit& f) { return Json(f.fit.bus_bandwidth(f.group.ranks) / 1e9); }, Where::table},
      {"half_bytes", "", Unit::bytes, [](const Fit& f) { return Json(f.fit.half_bytes()); }},
      {"r_squared", "R2", Unit::number, [](const Fit& f) { return Json(f.fit.r_squared); }, Where::table, "",
       [](const Json& row) { return fmt::format("{:.3f}", row.at("r_squared").get<double>()); }},
      {"points", "", Unit::count, [](const Fit& f) { return Json(f.fit.points); }},
      {"verdict", "bound by", Unit::text, [](const Fit& f) { return Json(f.fit.bound_by()); }, Where::table},
  };
  return kSchema;
}

}  // namespace

StudyPage allreduce_page(const BenchAllReduceReport& report, bool wide) {
  StudyPage page;
  page.place = place_line(report.device, report.device_name, report.threads, report.isa, report.copy, {});
  page.columns = schema().forms();
  page.shown.wide = wide;
  std::vector<Json> timed, others;
  for (const AllReduceRow& r : report.rows) {
    page.rows.push_back(schema().row({report, r}));
    (r.passed() ? timed : others).push_back(page.rows.back());
    if (!r.passed()) page.notes.push_back(r.why_not());
  }
  for (std::string& note : roofline_notes(timed)) page.notes.push_back(std::move(note));
  add_load_note(report, page.notes);
  std::vector<Json> fits;
  for (const AllReduceFit& f : report.fits) fits.push_back(fit_schema().row(f));
  page.tables = {table_of("latency and bandwidth, fitted to measured times", fit_schema().forms(), fits)};
  page.json = {{"command", "bench allreduce"},
               {"device", report.device},
               {"host", host_json(report)},
               {"build_id", own_build()},
               {"copy_gb_per_s", report.copy / 1e9},
               {"rows", timed},
               {"not_timed", others},
               {"fits", fits}};
  return page;
}

std::vector<std::string> allreduce_result_lines(const BenchAllReduceReport& report) {
  std::vector<std::string> lines;
  for (const AllReduceRow& r : report.rows) {
    lines.push_back(result_line("bench allreduce", schema().row({report, r}),
                                r.passed() ? r.run.timing : Timing{}, host_json(report)));
  }
  return lines;
}

void write_allreduce_charts(const std::string& out, const BenchAllReduceReport& report) {
  std::map<std::string, std::vector<const AllReduceRow*>> by_dtype;
  for (const AllReduceRow& r : report.rows) {
    if (r.passed()) by_dtype[std::string(name_of(r.dtype))].push_back(&r);
  }
  std::vector<NamedChart> charts;
  for (const auto& [dtype, rows] : by_dtype) {
    LineChart chart;
    chart.title = "All-reduce: time over size";
    chart.below_title =
        fmt::format("{} {}, median time of the slowest rank; dashed: fitted latency + bytes / bandwidth",
                    report.device_name, dtype);
    chart.x_label = "bytes";
    chart.y_label = "ms";
    chart.style_names[1] = "fit";
    std::map<std::string, std::size_t> lines;
    std::map<double, std::string> ticks;
    for (const AllReduceRow* r : rows) {
      const std::string name =
          fmt::format("{} {} {}", r->group.transport, r->group.algorithm, r->group.ranks);
      if (!lines.contains(name)) {
        lines[name] = chart.lines.size();
        const std::size_t colour = chart.lines.size() / 2;
        chart.lines.push_back({name, colour, LineStyle::measured, {}});
        chart.lines.push_back({"", colour, LineStyle::predicted, {}});
      }
      const double x = r->bytes();
      chart.lines[lines[name]].points.push_back({x, ms(r->run.timing.p50)});
      if (r->fit) chart.lines[lines[name] + 1].points.push_back({x, ms(r->fit->seconds(x))});
      ticks[x] = r->size_name();
    }
    for (const auto& [at, name] : ticks) chart.x_ticks.push_back({at, name});
    charts.push_back({fmt::format("time-over-size-{}", dtype), line_chart_svg(chart)});
  }
  for (const std::string& path : write_charts(out, "allreduce", charts))
    fmt::print(stderr, "wrote {}\n", path);
}

}  // namespace kiln
