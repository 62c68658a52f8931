// Stored rows as the tables of the commands that measured them, from files that may lie anywhere: what the
// pages of docs/results are made of (`kiln report --rows`).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "report/tables/study_page.h"

namespace kiln {

// Every row of each file, one JSON object a line. A line that is none is an error: these files are kept, not
// appended to.
std::vector<Json> read_row_files(const std::vector<std::string>& paths);

// Has it a place in a table? Whatever has a time needs a gate that compared its result; what has none says
// why in its status.
bool belongs_in_tables(const Json& row);

// A page for each command, machine and build; of rows that measured the same thing the last. `columns`: which
// of them, in this order; none: those the command shows. What was left out is in the notes.
StudyPage rows_page(std::span<const Json> rows, const std::vector<std::string>& columns, bool wide);

// Those of `wanted` by key, in that order, each shown; all as they are where none is wanted.
std::vector<ColumnForm> chosen_columns(std::span<const ColumnForm> known,
                                       const std::vector<std::string>& wanted);

// The notes that say which rows are left out and why, of those that do not belong in a table.
std::vector<std::string> left_out_notes(std::span<const Json> rows, std::string_view whose);

}  // namespace kiln
