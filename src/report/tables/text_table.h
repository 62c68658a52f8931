// A table of words and figures, and how it is written: for a terminal, a document, a paper, a spreadsheet.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln {

using TextTable = std::vector<std::vector<std::string>>;  // the first line is the heading

enum class PageFormat { text, markdown, csv, latex, json };

// The first `left` columns hold words, the others figures.
std::string aligned(const TextTable& table, std::size_t left);
std::string markdown_table(const TextTable& table, std::size_t left);
// A tabular with rules of the booktabs package; what LaTeX would take for a command is escaped.
std::string latex_table(const TextTable& table, std::size_t left);
// As RFC 4180 has it: a cell with a comma, a quote or a line break stands in quotes.
std::string csv_table(const TextTable& table);

// One of the four; json has no table.
std::string written(const TextTable& table, std::size_t left, PageFormat format);

std::string latex_escaped(std::string_view text);

}  // namespace kiln
