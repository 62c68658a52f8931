// What the chapters ask of rows: picking, ranges, and figures as sentences have them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/charts/line_chart.h"
#include "rows/row_status.h"
#include "rows/row_values.h"
#include "rows/schema.h"
#include "studies/report/chapters/chapter.h"

namespace kiln {

std::vector<Json> rows_of(Rows rows, std::string_view command);
std::vector<Json> rows_where(Rows rows, const std::function<bool(const Json&)>& keep);
std::vector<Json> timed_rows(Rows rows);  // with a median, whose gate passed
bool word_is(const Json& row, std::string_view key, std::string_view text);

// Rows that are alike in all of `keys`, in the order in which they first appear.
std::vector<std::vector<Json>> groups_by(Rows rows, std::initializer_list<std::string_view> keys);
// The row with the greatest value of a key; null where none has it.
const Json* greatest(Rows rows, std::string_view key);
const Json* least(Rows rows, std::string_view key);
std::vector<std::string> values_of(Rows rows, std::string_view key);  // each once

// "a, b and c"
std::string listed(const std::vector<std::string>& words);
// "1.84x", or "1.56x to 2.10x"; shares as "12 %", or "12 % to 15 %"; nothing of none.
std::string range_of_times(std::vector<double> ratios);
std::string range_of_shares(std::vector<double> shares);
std::string percent_text(double share);  // "12 %", "0.4 %"
std::string bytes_text(double bytes);    // "512 MiB", "17.6 GiB"
std::string ms_text(double ms);          // "4.68 ms"
// "small, fp32, ctx 512": of these keys what the rows do not all share; all of it where there is one row.
std::string name_among(Rows rows, const Json& row, std::initializer_list<std::string_view> keys);
std::string capitalized(std::string text);
std::string plural(std::size_t n, std::string_view word);  // "1 row", "3 rows"

// A table of rows with these columns; those without a value in any row are left out.
PageTable facts_table(std::string heading, Rows rows, std::initializer_list<ColumnForm> columns);

// A line for each group of rows alike in `by`, through (x, y). At least one line needs two points.
struct CurveSpec {
  std::string name, title, below, x_label, y_label, x, y;
  std::vector<std::string> by;
  double y_scale = 1;      // times y
  std::string floor = {};  // the key of a dotted line
  std::string floor_name = "roofline";
};
std::vector<AnswerChart> curve(Rows rows, const CurveSpec& spec);

}  // namespace kiln
