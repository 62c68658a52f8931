#include "studies/sweep/grid.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/choice.h"
#include "base/error.h"

namespace kiln {
namespace {

constexpr int64_t kLargest = int64_t{1} << 40;
constexpr std::size_t kMostCells = 10000;

bool is_range(const std::string& arg) {
  const auto dots = arg.find("..");
  return dots != std::string::npos && dots > 0 &&
         std::all_of(arg.begin(), arg.end(), [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
}

}  // namespace

std::vector<GridAxis> read_axes(const std::vector<std::string>& texts) {
  std::vector<GridAxis> axes;
  std::size_t cells = 1;
  for (const std::string& text : texts) {
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      throw Error(fmt::format("--grid is '{}'; expected key=value,value", text),
                  "give --grid once for each key: --grid ctx=128,256 --grid dtype=fp32,bf16",
                  ErrorKind::usage);
    GridAxis axis{text.substr(0, equals), {}};
    if (axis.key.starts_with("--")) axis.key.erase(0, 2);
    if (std::any_of(axes.begin(), axes.end(), [&](const GridAxis& a) { return a.key == axis.key; }))
      throw Error(fmt::format("--grid has {} twice", axis.key), {}, ErrorKind::usage);
    for (const std::string& arg : split_at_commas(std::string_view(text).substr(equals + 1))) {
      if (arg.empty())
        throw Error(fmt::format("--grid is '{}', which holds an empty value", text), {}, ErrorKind::usage);
      std::vector<std::string> values = {arg};
      if (is_range(arg)) {
        values.clear();
        for (int64_t n : read_doubling("--grid " + axis.key, arg, kLargest))
          values.push_back(std::to_string(n));
      }
      for (std::string& v : values) {
        if (std::find(axis.values.begin(), axis.values.end(), v) == axis.values.end())
          axis.values.push_back(std::move(v));
      }
    }
    cells *= axis.values.size();
    if (cells > kMostCells)
      throw Error(fmt::format("--grid makes more than {} cells", kMostCells), {}, ErrorKind::usage);
    axes.push_back(std::move(axis));
  }
  return axes;
}

std::vector<GridCell> cells_of(const std::vector<GridAxis>& axes) {
  std::vector<GridCell> cells = {{}};
  for (const GridAxis& axis : axes) {
    std::vector<GridCell> longer;
    for (const GridCell& cell : cells) {
      for (const std::string& value : axis.values) {
        longer.push_back(cell);
        longer.back().emplace_back(axis.key, value);
      }
    }
    cells = std::move(longer);
  }
  return cells;
}

std::string str(const GridCell& cell) {
  std::string text;
  for (const auto& [key, value] : cell) text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
  return text;
}

}  // namespace kiln
