// Single cells of a page that was written as CSV.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "base/error.h"

namespace kiln {

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

// Of a line: a comma between quotes belongs to its cell.
inline std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

// The values of a line under some of the columns of the heading, joined by spaces.
inline std::string picked(const std::string& csv, std::size_t line, const std::vector<std::string>& keys) {
  const auto lines = lines_of(csv);
  const std::vector<std::string> heading = cells_of(lines.at(0)), values = cells_of(lines.at(line));
  std::string text;
  for (const std::string& key : keys) {
    const auto at = std::find(heading.begin(), heading.end(), key) - heading.begin();
    text += cat(text.empty() ? "" : " ", values.at(static_cast<std::size_t>(at)));
  }
  return text;
}

}  // namespace kiln
