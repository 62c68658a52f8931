// Values of a result row, live or stored: a row may lack any of them, and may come from an earlier kiln.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace kiln {

// Four digits that mean something, without exponents.
std::string figure(double x);

// "1.84x"; "-" where there is no ratio, which is 0.
std::string times(double ratio);

// A number at `key`, or nothing where it is absent or null.
std::optional<double> number_at(const Json& row, std::string_view key);
// At `key`, or at the one it had in rows that were stored before it was renamed.
std::optional<double> number_at(const Json& row, std::string_view key, std::string_view was);
// Of a timed row: what its own operations and bytes take at the ceilings, and what those of the best way
// known.
std::optional<double> own_roofline_of(const Json& row);
std::optional<double> roofline_of(const Json& row);
// The same as text: "-" where there is none. In MiB to a hundredth, of bytes.
std::string figure_at(const Json& row, std::string_view key);
std::string mebibytes_at(const Json& row, std::string_view key);
// One's number over the other's; 0 where there is none.
double ratio_at(const Json& a, const Json& b, std::string_view key);
double ratio_of(const std::optional<double>& a, const std::optional<double>& b);
// Of one row: a part of a whole. 0 where there is none.
double ratio_of(const Json& row, std::string_view part, std::string_view whole);
// Why there are no times: "OOM", or the status; "-" where the row is ok.
std::string in_place_of_times(const Json& row);
// A word or a whole number as text, sizes as "rows=8,cols=4"; empty where there is none.
std::string text_at(const Json& row, std::string_view key);
// Every time that was taken, in ms; none where they were not stored.
std::vector<double> samples_of(const Json& row, std::string_view key = "raw_samples");

}  // namespace kiln
