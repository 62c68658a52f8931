// The files of `kiln report`: report.md with its charts in a folder next to it, and report.html, which needs
// neither.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "studies/report/report_page.h"

namespace kiln {

struct ReportFiles {
  ReportPage page;
  std::size_t stored = 0;            // rows there were
  std::vector<std::string> written;  // report.md first, then report.html
};

// From the rows of `folder` into `out`; of one of writeup_names() as writeup-NAME.md and .html. Problems
// found in the rows, perhaps repaired for good, are on stderr where they cannot be in the page.
ReportFiles make_report_files(const std::string& folder, const std::string& out,
                              const std::string& writeup = {});

Json report_json(const ReportFiles& report);
std::string report_text(const ReportFiles& report);

}  // namespace kiln
