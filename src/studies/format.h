// What the pages of all benches share: how figures are written, and the line of a result that is kept.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "perf/timing/host_load.h"
#include "report/tables/text_table.h"
#include "rows/schema.h"
#include "studies/op/op.h"

namespace kiln {

inline double ms(double seconds) { return 1e3 * seconds; }

// Three or four digits that mean something, without exponents.
std::string digits(double x);

// Bytes in MiB, to a hundredth.
std::string fine_mib(double bytes);

std::string dump(const Json& page, int indent);

std::string own_build();  // the build id

// Where rows were measured, and the ceilings measured with them; GEMM rates in TFLOP/s. `when` says of
// the ceilings when they were measured.
std::string place_line(const std::string& device, const std::string& device_name, int threads,
                       const std::string& isa, double copy, const std::vector<NamedRate>& flops,
                       const std::string& when = "measured here");

// A report's page in each form, and the one that was requested.
template <class Report>
struct PageForms {
  using Page = std::string (*)(const Report&);
  Page text, markdown, csv, latex, json;

  std::string operator()(const Report& report, PageFormat format) const {
    switch (format) {
      case PageFormat::json:
        return json(report);
      case PageFormat::markdown:
        return markdown(report);
      case PageFormat::csv:
        return csv(report);
      case PageFormat::latex:
        return latex(report);
      default:
        return text(report);
    }
  }
};

// What else the machine did while rows were timed: of a stored row its `host.load`.
Json load_json(const HostLoad& load);

// A report is one of BenchReport and BenchStepReport: they state where they ran and the ceilings alike.
template <class Report>
Json host_json(const Report& r) {
  Json host = {{"device_name", r.device_name}, {"isa", r.isa}, {"threads", r.threads}};
  if (r.load.seconds > 0) host["load"] = load_json(r.load);
  return host;
}

// What makes the page's times unreliable, as its first note; nothing where nothing does.
template <class Report>
void add_load_note(const Report& r, std::vector<std::string>& notes) {
  if (std::string why = r.load.why_unreliable(); !why.empty()) notes.insert(notes.begin(), std::move(why));
}

template <class Report>
Json ceilings_json(const Report& r) {
  Json flops = Json::object();
  for (const NamedRate& f : r.flops) flops[f.name] = f.per_second / 1e9;
  return {{"copy_gb_per_s", r.copy / 1e9}, {"gflop_per_s", flops}};
}

// The document of --json, but for what is a study's own.
template <class Report>
Json bench_document(const std::string& command, const Report& r, const std::vector<Json>& rows) {
  return {{"command", command},      {"device", r.device},           {"host", host_json(r)},
          {"build_id", own_build()}, {"ceilings", ceilings_json(r)}, {"rows", rows}};
}

// Mean, spread and interval of a timing, under the names every stored row has; and its columns.
Json timing_json(const Timing& t);
std::span<const ColumnForm> timing_forms();
template <class Row>
Column<Row> timing_columns(Json (*get)(const Row&)) {
  return {.key = "", .title = "", .get = get, .group = timing_forms()};
}

// How many times faster than naive a row is; of naive itself there is no comparison.
Json speedup_json(const std::optional<double>& speedup, const std::optional<Comparison>& versus);
std::span<const ColumnForm> speedup_forms();
template <class Row>
Column<Row> speedup_columns(Json (*get)(const Row&)) {
  return {.key = "", .title = "", .get = get, .group = speedup_forms()};
}

// The bytes of every tag that has any.
Json tags_json(const PerTag<std::size_t>& tags);

// For results.jsonl: a row with its samples, and where and when it was measured.
std::string result_line(const std::string& command, const Json& row, const Timing& timing, const Json& host);

// The same of a study that has no times: its document as one row.
std::string document_line(const Json& page);

}  // namespace kiln
