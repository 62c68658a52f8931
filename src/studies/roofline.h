// The roofline of a timed row: what its operations and bytes take at the ceilings. A bound from below, but
// for rows that need fewer of them than the best way known, or whose tensors never leave the cache: then the
// row says which, and not "215 %".
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perf/timing/op_times.h"
#include "rows/schema.h"

namespace kiln {

// All in ms.
struct RooflineFacts {
  double measured = 0;
  double own = 0;     // of the row's own operations and bytes
  double best = 0;    // of those of the best way known
  double cached = 0;  // the lesser of both if bytes that fit into the cache cost nothing
};

// Why `measured` is below `best`: "less work" (its own operations and bytes take less), "cache", or
// "unexplained" (the machine was faster than when its ceilings were measured); empty where it is not.
std::string_view why_below_roofline(const RooflineFacts& facts);

// Of one piece of work, and of ops one after another. `cache`: bytes; what is smaller costs no bytes' time.
// 0: everything comes from memory.
double roofline_ms(const Cost& cost, const Rates& best, double cache = 0);
double sum_of_rooflines(std::span<const TimedOp> ops, const Rates& best, double cache = 0);

// own_roofline_ms, roofline_ms, of_roofline, and below_roofline where there is a reason; and their columns.
Json roofline_json(const RooflineFacts& facts);
std::span<const ColumnForm> roofline_forms();
template <class Row>
Column<Row> roofline_columns(Json (*get)(const Row&)) {
  return {.key = "", .title = "", .get = get, .group = roofline_forms()};
}

// "87 %", or "faster: cache" where there is nothing to take a share of.
std::string of_roofline_text(double share, std::string_view why_below);
std::string of_roofline_cell(const Json& row);

// A sentence for each row that was faster than its roofline, grouped by the reason; none where none was.
std::vector<std::string> roofline_notes(std::span<const Json> rows);

}  // namespace kiln
