#include "studies/roofline.h"

#include <fmt/format.h>

#include <algorithm>

#include "rows/row_values.h"

namespace kiln {
namespace {

constexpr std::string_view kLessWork = "less work", kCache = "cache", kUnexplained = "unexplained";

std::string_view explained(std::string_view why) {
  if (why == kLessWork) return "their own operations and bytes take less than those of the best way known";
  if (why == kCache) return "tensors that fit into the cache need not come from memory";
  return "neither the cache nor less work explains it: the machine was slower when its ceilings were "
         "measured";
}

// Of a stored row. Those of the first schema say no more than whether they fit into the cache.
std::string_view why_below(const Json& row) {
  const std::string word = text_at(row, "below_roofline");
  for (const std::string_view known : {kLessWork, kCache, kUnexplained})
    if (word == known) return known;
  if (number_at(row, "of_roofline").value_or(0) <= 1) return {};
  return text_at(row, "fits_in_cache") == "yes" ? kCache : kUnexplained;
}

}  // namespace

std::string_view why_below_roofline(const RooflineFacts& f) {
  if (f.measured >= f.best) return {};
  if (f.measured >= f.own) return kLessWork;
  return f.measured >= f.cached ? kCache : kUnexplained;
}

double roofline_ms(const Cost& cost, const Rates& best, double cache) {
  const double by_flops = cost.flops / best.flops, by_bytes = cost.bytes / best.bytes;
  return 1e3 * (cost.bytes <= cache ? by_flops : std::max(by_flops, by_bytes));
}

double sum_of_rooflines(std::span<const TimedOp> ops, const Rates& best, double cache) {
  double sum = 0;
  for (const TimedOp& op : ops) sum += roofline_ms(op.cost, best, cache);
  return sum;
}

Json roofline_json(const RooflineFacts& f) {
  Json json = {{"own_roofline_ms", f.own}, {"roofline_ms", f.best}};
  if (f.measured > 0) json["of_roofline"] = f.best / f.measured;
  if (const std::string_view why = why_below_roofline(f); !why.empty()) json["below_roofline"] = why;
  return json;
}

std::span<const ColumnForm> roofline_forms() {
  static constexpr ColumnForm kForms[] = {
      {"own_roofline_ms", "own roofline ms", Unit::milliseconds, Where::table, "predicted_ms"},
      {"roofline_ms", "roofline ms", Unit::milliseconds, Where::wide, "floor_ms"},
      {"of_roofline", "of roofline", Unit::percent, Where::table, "", of_roofline_cell},
      {"below_roofline", "", Unit::text},
  };
  return kForms;
}

std::string of_roofline_text(double share, std::string_view why) {
  return why.empty() ? fmt::format("{:.0f} %", 100 * share) : fmt::format("faster: {}", why);
}

std::string of_roofline_cell(const Json& row) {
  const auto share = number_at(row, "of_roofline");
  return share ? of_roofline_text(*share, why_below(row)) : "";
}

std::vector<std::string> roofline_notes(std::span<const Json> rows) {
  std::vector<std::string> notes;
  for (const std::string_view why : {kLessWork, kCache, kUnexplained}) {
    const auto n =
        std::count_if(rows.begin(), rows.end(), [&](const Json& r) { return why_below(r) == why; });
    if (n > 0)
      notes.push_back(fmt::format("{} row{} faster than the roofline ({}): {}", n, n == 1 ? " is" : "s are",
                                  why, explained(why)));
  }
  return notes;
}

}  // namespace kiln
