#include "report/tables/text_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/text/escape.h"

namespace kiln {
namespace {

// Characters a terminal shows: bytes that continue one are not counted.
std::size_t shown(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

}  // namespace

std::string aligned(const TextTable& given, std::size_t left) {
  TextTable table = given;  // a terminal obeys control characters
  for (auto& line : table)
    for (std::string& cell : line) cell = shown_text(cell);
  std::vector<std::size_t> width(table.front().size());
  for (const auto& line : table) {
    for (std::size_t i = 0; i < line.size(); ++i) width[i] = std::max(width[i], shown(line[i]));
  }
  std::string text;
  for (const auto& line : table) {
    std::string row;
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (i > 0) row += "  ";
      const std::string fill(width[i] - shown(line[i]), ' ');
      row += i < left ? line[i] + fill : fill + line[i];
    }
    row.resize(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text;
}

std::string markdown_table(const TextTable& table, std::size_t left, std::size_t raw) {
  std::string text;
  for (std::size_t i = 0; i < table.size(); ++i) {
    std::vector<std::string> cells;
    for (std::size_t c = 0; c < table[i].size(); ++c)
      cells.push_back(c == raw ? table[i][c] : markdown_escaped(table[i][c]));
    text += fmt::format("| {} |\n", fmt::join(cells, " | "));
    if (i > 0) continue;
    text += "|";
    for (std::size_t c = 0; c < table[i].size(); ++c) text += c < left ? "---|" : "---:|";
    text += "\n";
  }
  return text;
}

std::string latex_table(const TextTable& table, std::size_t left) {
  const std::size_t columns = table.front().size();
  const std::size_t words = std::min(left, columns);
  std::string text = fmt::format("\\begin{{tabular}}{{{}{}}}\n\\toprule\n", std::string(words, 'l'),
                                 std::string(columns - words, 'r'));
  for (std::size_t i = 0; i < table.size(); ++i) {
    std::vector<std::string> cells;
    cells.reserve(table[i].size());
    for (const std::string& cell : table[i]) cells.push_back(latex_escaped(cell));
    text += fmt::format("{} \\\\\n{}", fmt::join(cells, " & "), i == 0 ? "\\midrule\n" : "");
  }
  return text + "\\bottomrule\n\\end{tabular}\n";
}

std::string csv_table(const TextTable& table) {
  std::string text;
  for (const auto& line : table) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (i > 0) text += ',';
      text += csv_cell(line[i]);
    }
    text += "\n";
  }
  return text;
}

std::string written(const TextTable& table, std::size_t left, PageFormat format) {
  switch (format) {
    case PageFormat::markdown:
      return markdown_table(table, left);
    case PageFormat::csv:
      return csv_table(table);
    case PageFormat::latex:
      return latex_table(table, left);
    default:
      return aligned(table, left);
  }
}

}  // namespace kiln
