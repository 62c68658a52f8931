// The tables that follow a bench's rows, made of the rows alone: the same for a command's own and for those
// of a sweep, which come from results.jsonl.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "report/tables/text_table.h"

namespace kiln::cli {

// The lines that results.jsonl gets, read back.
std::vector<nlohmann::json> rows_of(const std::vector<std::string>& result_lines);

// Of `bench step` pairs, laws of growth and what the time varies with, as of attention's grids; of `bench op`
// ladders and crossovers; empty where there is nothing to compare.
std::string studies_page(const std::string& command, std::span<const nlohmann::json> rows, PageFormat format);
nlohmann::ordered_json studies_json(const std::string& command, std::span<const nlohmann::json> rows);

// A sentence below a table: a line of text, a paragraph of Markdown, a comment of LaTeX.
std::string remark(const std::string& line, PageFormat format);
// The words above a table.
std::string heading(const std::string& line, PageFormat format);

}  // namespace kiln::cli
