// What the times of a grid vary with: the share of their variance, as logarithms, that each option explains
// by itself, and the same share of the rooflines. What is left is interaction between options.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "report/tables/text_table.h"

namespace kiln {

struct VarianceShare {
  std::string factor;  // "ctx"; "options together" for what none explains by itself
  std::size_t levels = 0;
  double measured = 0;
  double own_roofline = 0;  // of the rows' own rooflines
  double roofline = 0;      // and of those of the best way known
};

// Of timed rows that are a whole grid: every combination of the values that occur, equally often. Empty where
// they are not, or where fewer than two options vary. The largest comes first, "options together" last.
std::vector<VarianceShare> variance_shares(std::span<const Json> rows, std::span<const char* const> options);

TextTable variance_table(std::span<const VarianceShare> shares);
Json variance_json(std::span<const VarianceShare> shares);

}  // namespace kiln
