#include "studies/sweep/variance_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/json.h"
#include "rows/row_status.h"
#include "rows/row_values.h"

namespace kiln {
namespace {

constexpr const char* kTogether = "options together";

struct Cell {
  std::vector<std::string> levels;  // one for each option
  std::vector<double> logs;         // of each kind of time
};

// "auto" where a run would choose by itself: the name it chooses may differ from cell to cell.
std::string level_of(const Json& row, const char* option) {
  if (std::string_view(option) == "variant" && row.value("auto", false)) return "auto";
  return text_at(row, option);
}

std::vector<Cell> cells_of(std::span<const Json> rows, std::span<const char* const> options) {
  std::vector<Cell> cells;
  for (const Json& row : rows) {
    const auto ms = number_at(row, "p50_ms"), own = own_roofline_of(row), roofline = roofline_of(row);
    if (status_of(row) != RowStatus::ok || !ms || !own || !roofline) continue;
    if (!(*ms > 0 && *own > 0 && *roofline > 0)) continue;
    Cell cell;
    for (const char* option : options) cell.levels.push_back(level_of(row, option));
    cell.logs = {std::log(*ms), std::log(*own), std::log(*roofline)};
    cells.push_back(std::move(cell));
  }
  return cells;
}

using Levels = std::map<std::string, std::size_t>;  // and in how many cells each occurs

bool whole_grid(const std::vector<Cell>& cells, const std::vector<Levels>& levels) {
  std::map<std::vector<std::string>, std::size_t> seen;
  for (const Cell& c : cells) ++seen[c.levels];
  std::size_t combinations = 1;
  for (const Levels& l : levels) combinations *= l.size();
  return seen.size() == combinations && std::all_of(seen.begin(), seen.end(), [&](const auto& s) {
           return s.second == seen.begin()->second;
         });
}

// Of the sum of squares about the mean: what replacing each value by its level's mean keeps. In a whole grid
// those of different options add up to no more than all.
double share_of(const std::vector<Cell>& cells, std::size_t option, std::size_t kind) {
  double mean = 0, all = 0, between = 0;
  for (const Cell& c : cells) mean += c.logs[kind] / static_cast<double>(cells.size());
  std::map<std::string, std::pair<double, double>> sums;  // and counts
  for (const Cell& c : cells) {
    all += (c.logs[kind] - mean) * (c.logs[kind] - mean);
    auto& [sum, count] = sums[c.levels[option]];
    sum += c.logs[kind] - mean;
    ++count;
  }
  for (const auto& [level, s] : sums) between += s.first * s.first / s.second;
  return all > 0 ? between / all : 0;
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace

std::vector<VarianceShare> variance_shares(std::span<const Json> rows, std::span<const char* const> options) {
  const std::vector<Cell> cells = cells_of(rows, options);
  std::vector<Levels> levels(options.size());
  for (const Cell& c : cells) {
    for (std::size_t i = 0; i < options.size(); ++i) ++levels[i][c.levels[i]];
  }
  std::vector<VarianceShare> shares;
  if (!whole_grid(cells, levels)) return shares;
  VarianceShare rest{kTogether, 0, 1, 1, 1};
  for (std::size_t i = 0; i < options.size(); ++i) {
    if (levels[i].size() < 2) continue;
    const VarianceShare s{options[i], levels[i].size(), share_of(cells, i, 0), share_of(cells, i, 1),
                          share_of(cells, i, 2)};
    rest.measured -= s.measured;
    rest.own_roofline -= s.own_roofline;
    rest.roofline -= s.roofline;
    shares.push_back(s);
  }
  if (shares.size() < 2) return {};
  std::stable_sort(shares.begin(), shares.end(),
                   [](const auto& a, const auto& b) { return a.measured > b.measured; });
  for (double* left : {&rest.measured, &rest.own_roofline, &rest.roofline})
    *left = std::max(0.0, *left);  // rounding
  shares.push_back(rest);
  return shares;
}

TextTable variance_table(std::span<const VarianceShare> shares) {
  TextTable table = {{"option", "values", "measured", "own roofline", "roofline"}};
  for (const VarianceShare& s : shares)
    table.push_back({s.factor, s.levels > 0 ? fmt::format("{}", s.levels) : "-", percent(s.measured),
                     percent(s.own_roofline), percent(s.roofline)});
  return table;
}

Json variance_json(std::span<const VarianceShare> shares) {
  Json list = Json::array();
  for (const VarianceShare& s : shares)
    list.push_back({{"option", s.factor},
                    {"values", s.levels},
                    {"measured", s.measured},
                    {"own_roofline", s.own_roofline},
                    {"roofline", s.roofline}});
  return list;
}

}  // namespace kiln
