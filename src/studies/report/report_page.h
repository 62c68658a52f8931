// report.md: every stored row that a table or a picture can be made of. Words and figures come from the rows
// alone; rows of different machines, builds and sizes are never put into one table without saying so.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace kiln {

struct ReportPicture {
  std::string name;  // of the file, "ablation-1-speedup.svg"
  std::string svg;
};

struct ReportPage {
  std::string markdown;
  std::vector<ReportPicture> pictures;
  std::vector<std::string> remarks;  // said in the page too: several machines, rows left out, ...
  std::size_t rows = 0;              // that are in a table
  std::size_t studies = 0;           // ablations
};

// `remarks`: what was noticed when the rows were read. `folder`: where the pictures will be, seen from the
// page. No rows that could be shown: a page with rows == 0.
ReportPage make_report(std::span<const nlohmann::json> rows, const std::vector<std::string>& remarks,
                       const std::string& folder);

}  // namespace kiln
