// The tables that follow a bench's rows, made of the rows alone: the same for a command's own and for those
// of a sweep, which come from results.jsonl.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "report/tables/study_page.h"

namespace kiln {

// The lines that results.jsonl gets, read back.
std::vector<Json> rows_of(const std::vector<std::string>& result_lines);

// The columns of a command's stored rows, by its name or what begins with it ("bench op rms_norm"); of one
// that states none, what all rows have.
std::span<const ColumnForm> columns_of(std::string_view command);

// Of `bench step` pairs, scaling fits and what the time varies with, as of attention's grids; of `bench op`
// ladders and crossovers; empty where there is nothing to compare.
std::vector<PageTable> study_tables(const std::string& command, std::span<const Json> rows);
Json studies_json(const std::string& command, std::span<const Json> rows);

}  // namespace kiln
