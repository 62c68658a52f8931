// What the pages of all benches share: how figures are written, and the line of a result that is kept.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "studies/op/op.h"
#include "report/tables/text_table.h"

namespace kiln::cli {

inline double ms(double seconds) { return 1e3 * seconds; }

// Three or four digits that mean something, without exponents.
std::string digits(double x);

// Bytes in MiB, to a hundredth.
std::string fine_mib(double bytes);

std::string dump(const nlohmann::ordered_json& page, int indent);

// Where rows were measured, and the ceilings measured beside them; product rates in TFLOP/s. `when` says of
// the ceilings when they were measured.
std::string place_line(const std::string& device, const std::string& device_name, int threads,
                       const std::string& isa, double copy, const std::vector<NamedRate>& flops,
                       const std::string& when = "measured here");

// A report's page in each form, and the one that was asked for.
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

// A report is one of BenchReport and BenchStepReport: they state where they ran and the ceilings alike.
template <class Report>
nlohmann::ordered_json host_json(const Report& r) {
  return {{"device_name", r.device_name}, {"isa", r.isa}, {"threads", r.threads}};
}

template <class Report>
nlohmann::ordered_json ceilings_json(const Report& r) {
  nlohmann::ordered_json flops = nlohmann::ordered_json::object();
  for (const NamedRate& f : r.flops) flops[f.name] = f.per_second / 1e9;
  return {{"copy_gb_per_s", r.copy / 1e9}, {"gflop_per_s", flops}};
}

// Mean, spread and interval of a timing, under the names every stored row has.
nlohmann::ordered_json timing_json(const Timing& t);

// The bytes of every tag that has any.
nlohmann::ordered_json tags_json(const PerTag<std::size_t>& tags);

// For results.jsonl: a row with its samples, and where and when it was measured.
std::string result_line(const std::string& command, const nlohmann::ordered_json& row, const Timing& timing,
                        const nlohmann::ordered_json& host);

}  // namespace kiln::cli
