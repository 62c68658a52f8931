// A study's results, apart from their format: where it was measured, its rows, tables over
// them, and what could not be measured. written() makes of it a page for a terminal, a document, a
// paper, a spreadsheet or a program.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "report/tables/text_table.h"
#include "rows/schema.h"

namespace kiln {

struct PageTable {
  std::string heading;
  TextTable table;
  std::size_t left = 1;                 // leading columns of words
  bool in_csv = false;                  // CSV is one table: the rows, or the one that says so
  std::vector<std::string> lines = {};  // below it, each a sentence or more; where it has none, instead of it
};

// Rows of a kind, as a table below the main one.
PageTable page_table(std::string heading, std::span<const ColumnForm> columns, const Json& rows,
                     const RowTableOptions& shown = {});

struct StudyPage {
  std::string title = {};  // of a part
  std::string place = {};  // one line: device, threads, ceilings
  std::span<const ColumnForm> columns = {};
  std::vector<Json> rows = {};    // the main table
  std::vector<Json> others = {};  // in CSV alone: rows without figures, or those another table stands for
  std::vector<std::string> notes = {};  // a sentence each
  std::vector<PageTable> tables = {};   // below the rows
  Json json = Json::object();           // the document of --json, whole
  RowTableOptions shown = {};
  std::vector<StudyPage> parts = {};  // a page of its own for each of several things, in text and documents
};

std::string written(const StudyPage& page, PageFormat format);

// Broken at spaces into lines of at most `width`, without a line break at the end.
std::string wrapped(std::string_view text, std::size_t width = 100);

// Of CSV, nothing; of LaTeX, a comment.
std::string quoted_note(const std::string& line, PageFormat format);
std::string heading(const std::string& line, PageFormat format);

}  // namespace kiln
