// What the times of a grid vary with: the share of their variance, as logarithms, that each option explains
// by itself, beside the same share of the predicted times. What is left is what options do together.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "report/tables/text_table.h"

namespace kiln {

struct VarianceShare {
  std::string factor;  // "ctx"; "options together" for what none explains by itself
  std::size_t levels = 0;
  double measured = 0;
  double predicted = 0;  // of the predicted times
  double floor = 0;      // and of the floors
};

// Of timed rows that are a whole grid: every combination of the values that occur, equally often. Empty where
// they are not, or where fewer than two options vary. The largest comes first, "options together" last.
std::vector<VarianceShare> variance_shares(std::span<const nlohmann::json> rows,
                                           std::span<const char* const> options);

TextTable variance_table(std::span<const VarianceShare> shares);
nlohmann::ordered_json variance_json(std::span<const VarianceShare> shares);

}  // namespace kiln
