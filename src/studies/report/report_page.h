// report.md: every stored row that a table or a chart can be made of. Words and figures come from the rows
// alone; rows of different machines, builds and sizes are never put into one table without saying so.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"

namespace kiln {

struct ReportChart {
  std::string name;  // of the file, "ablation-1-speedup.svg"
  std::string svg;
};

struct ReportPage {
  std::string markdown;
  std::vector<ReportChart> charts;
  std::vector<std::string> notes;  // said in the page too: several machines, rows left out, ...
  std::size_t rows = 0;            // that are in a table
  std::size_t studies = 0;         // ablations
};

// `notes`: what was noticed when the rows were read. `folder`: where the charts will be, seen from the
// page. No rows that could be shown: a page with rows == 0.
ReportPage make_report(std::span<const Json> rows, const std::vector<std::string>& notes,
                       const std::string& folder);

}  // namespace kiln
