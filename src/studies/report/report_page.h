// A report: every stored row that says something, as one document. First what came of it in a few sentences,
// then chapters of questions with their answers, a checklist, and at last the rows as tables. Words and
// figures come from the rows alone; rows of different machines, builds and sizes are never put into one table
// without saying so.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "report/document/document.h"

namespace kiln {

struct ReportOptions {
  std::string build = {};    // this one: rows of another are stale
  std::string writeup = {};  // "profiling", "attention", "ddp", "sharding": its chapters alone; empty: all
  // A picture that a command wrote next to its rows; nothing where there is none.
  std::function<std::optional<std::string>(const std::string& name)> picture = nullptr;
};

struct ReportPage {
  Document document;
  std::vector<std::string> notes;  // said in the page too: several machines, rows left out, ...
  std::size_t rows = 0;            // that are in a table
  std::size_t studies = 0;         // ablations
  std::size_t answered = 0, questions = 0;
};

// The names that --writeup takes.
std::vector<std::string_view> writeup_names();

// `notes`: what was noticed when the rows were read. No rows that could be shown: a page with rows == 0.
ReportPage make_report(std::span<const Json> rows, const std::vector<std::string>& notes,
                       const ReportOptions& options = {});

}  // namespace kiln
