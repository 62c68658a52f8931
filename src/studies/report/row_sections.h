// The rows themselves, at the end of a report: of each ablation, and of steps and memory, a table and a
// chart.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "report/document/document.h"

namespace kiln {

struct RowSections {
  std::vector<DocumentSection> sections;
  std::size_t rows = 0;        // that are in a table
  std::size_t studies = 0;     // ablations
  std::size_t unverified = 0;  // rows that are left out
  std::size_t superseded = 0;  // rows in place of which a later one is shown
};

RowSections row_sections(std::span<const Json> rows);

}  // namespace kiln
