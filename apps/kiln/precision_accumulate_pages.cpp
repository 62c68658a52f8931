#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "studies/format.h"
#include "kiln/precision_pages.h"
#include "studies/precision/float_format.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

std::string label_of(const AccumulateRow& r) {
  const std::string_view sum = name_of(r.accumulator), added = name_of(r.added);
  switch (r.method) {
    case SumMethod::plain:
      return fmt::format("{} += {}", sum, added);
    case SumMethod::converted:
      return fmt::format("{} += {}({})", sum, sum, added);
    case SumMethod::kahan:
      return fmt::format("{}, Kahan", sum);
    case SumMethod::stochastic:
      return fmt::format("{}, stochastic", sum);
  }
  return {};
}

std::string limit_text(const AccumulateRow& r, double value) {
  switch (r.limit) {
    case SumLimit::value:
      return fmt::format("{:g} as {}", value, name_of(r.added));
    case SumLimit::spacing:
      return fmt::format("spacing {:.3g}", r.spacing);
    case SumLimit::stalls:
      return fmt::format("stops at {:.4g}", *r.stalls_at);
    case SumLimit::chance:
      return fmt::format("scatter {:.3g}", r.spread);
    case SumLimit::range:
      return fmt::format("ends at {:g}", format_of(r.accumulator).largest);
  }
  return {};
}

std::string predicted_text(const AccumulateRow& r) {
  return r.bound > 0 ? fmt::format("{:#.9g} +- {:.1g}", r.predicted, r.bound)
                     : fmt::format("{:#.9g}", r.predicted);
}

// What an addition adds while the sum is in each power of two: only where that is not the increment.
std::string steps_text(const AccumulateReport& report) {
  TextTable table = {{"sum", "from", "to", "spacing", "additions", "each adds", "in place of"}};
  for (const AccumulateRow& r : report.rows) {
    if (r.method != SumMethod::plain || r.added != r.accumulator || r.added == DType::f32) continue;
    for (const Binade& b : r.binades) {
      if (b.adds == r.increment) continue;
      table.push_back({std::string(name_of(r.accumulator)), fmt::format("{:g}", b.from),
                       fmt::format("{:g}", 2 * b.from), fmt::format("{:.9g}", b.spacing),
                       fmt::format("{}", b.count), b.adds == 0 ? "nothing" : fmt::format("{:.9g}", b.adds),
                       fmt::format("{:.9g}", r.increment)});
    }
  }
  if (table.size() == 1) return {};
  return "\nWhile the sum lies between two powers of two, every addition rounds alike:\n\n" +
         aligned(table, 1);
}

ordered_json row_json(const AccumulateRow& r) {
  ordered_json binades = ordered_json::array();
  for (const Binade& b : r.binades)
    binades.push_back({{"from", b.from}, {"spacing", b.spacing}, {"adds", b.adds}, {"additions", b.count}});
  return {{"accumulator", name_of(r.accumulator)},
          {"added", name_of(r.added)},
          {"method", name_of(r.method)},
          {"increment", r.increment},
          {"sum", r.sum},
          {"error", r.error},
          {"floor", r.floor},
          {"spacing", r.spacing},
          {"limit", name_of(r.limit)},
          {"stalls_at", r.stalls_at ? ordered_json(*r.stalls_at) : ordered_json()},
          {"predicted", r.predicted},
          {"bound", r.bound},
          {"runs", r.runs},
          {"spread", r.spread},
          {"predicted_spread", r.predicted_spread},
          {"binades", binades}};
}

}  // namespace

std::string accumulate_text(const AccumulateReport& report) {
  const AccumulateRequest& q = report.request;
  TextTable table = {{"sum += added", "sum", "error", "floor", "predicted", "limited by"}};
  for (const AccumulateRow& r : report.rows) {
    table.push_back({label_of(r), fmt::format("{:#.9g}", r.sum), fmt::format("{:+.3g}", r.error),
                     fmt::format("{:.2g}", r.floor), predicted_text(r), limit_text(r, q.value)});
  }
  std::string text = fmt::format("{:g} added {} times, one after the other; {:.9g} would be right\n\n",
                                 q.value, q.count, report.exact);
  text += aligned(table, 1);
  text += steps_text(report);
  text += fmt::format(
      "\nfloor: the error that {:g} makes by being rounded to the added dtype. predicted: plain sums by a\n"
      "walk over the powers of two; Kahan's is the exact sum rounded once; the mean of stochastic rounding\n"
      "is the exact sum. Stochastic rows are the mean of {} runs; scatter is the deviation of one run.\n",
      q.value, q.runs);
  return text;
}

std::string accumulate_json(const AccumulateReport& report) {
  ordered_json rows = ordered_json::array();
  for (const AccumulateRow& r : report.rows) rows.push_back(row_json(r));
  const ordered_json page = {{"study", "accumulate"},         {"count", report.request.count},
                             {"value", report.request.value}, {"seed", report.request.seed},
                             {"exact", report.exact},         {"rows", rows}};
  return dump(page, 2) + "\n";
}

}  // namespace kiln::cli
