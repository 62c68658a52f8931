// Stored rows of any command as one table. Columns of words stand there where they tell rows apart, columns
// of figures where some row has the figure: achieved, predicted and floor side by side.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "report/tables/text_table.h"

namespace kiln {

struct ResultTable {
  TextTable table;
  std::size_t left = 0;  // columns of words
};

// `axes` are the keys of a sweep's grid: the first columns. A row without times shows its gate in their
// place: OOM, timed out, failed.
ResultTable result_table(std::span<const nlohmann::json> rows, const std::vector<std::string>& axes);

// Four digits that mean something, without exponents.
std::string figure(double x);

// "1.84x"; "-" where there is no ratio, which is 0.
std::string times(double ratio);

// A number at `key`, or nothing where it is absent or null.
std::optional<double> number_at(const nlohmann::json& row, const char* key);
// The same as text: "-" where there is none. In MiB to a hundredth, of bytes.
std::string figure_at(const nlohmann::json& row, const char* key);
std::string mebibytes_at(const nlohmann::json& row, const char* key);
// One's number over the other's; 0 where there is none.
double ratio_at(const nlohmann::json& a, const nlohmann::json& b, const char* key);
// Why there are no times: "OOM", or the gate's own word.
std::string in_place_of_times(const nlohmann::json& row);
// A word or a whole number at `key`, as text; empty where there is none.
std::string word_at(const nlohmann::json& row, const char* key);
// Every time that was taken, in ms; none where they were not stored.
std::vector<double> samples_of(const nlohmann::json& row, const char* key = "raw_samples");

}  // namespace kiln
