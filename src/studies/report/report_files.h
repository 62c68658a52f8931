// The files of `kiln report`: report.md, and its charts in a folder next to it.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "studies/report/report_page.h"

namespace kiln {

struct ReportFiles {
  ReportPage page;
  std::size_t stored = 0;            // rows there were
  std::vector<std::string> written;  // report.md first
};

// From the rows of `folder` into `out`. Problems found in the rows, perhaps repaired for
// good, is on stderr where it cannot be in the page.
ReportFiles make_report_files(const std::string& folder, const std::string& out);

Json report_json(const ReportFiles& report);
std::string report_text(const ReportFiles& report);

}  // namespace kiln
