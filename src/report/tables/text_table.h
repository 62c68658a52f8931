// A table of text and figures, and how it is written: for a terminal, a document, a paper, a spreadsheet.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln {

using TextTable = std::vector<std::vector<std::string>>;  // the first line is the heading

inline constexpr std::size_t kNoColumn = static_cast<std::size_t>(-1);

enum class PageFormat { text, markdown, csv, latex, json };

// The first `left` columns hold words, the others figures.
std::string aligned(const TextTable& table, std::size_t left);
// Cells are escaped, but for those of the column `raw`, which are Markdown already.
std::string markdown_table(const TextTable& table, std::size_t left, std::size_t raw = kNoColumn);
// A tabular with rules of the booktabs package; what LaTeX would take for a command is escaped.
std::string latex_table(const TextTable& table, std::size_t left);
std::string csv_table(const TextTable& table);

// One of the four; json has no table.
std::string written(const TextTable& table, std::size_t left, PageFormat format);

}  // namespace kiln
