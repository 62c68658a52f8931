// Output of `kiln study` (docs/measuring.md lists the keys).
#pragma once

#include <string>

#include "report/tables/study_page.h"
#include "studies/course/course.h"

namespace kiln {

// In the terminal; its document is that of --json, and study.json.
StudyPage study_page(const StudyReport& report, bool wide = false);
std::string study_markdown(const StudyReport& report);  // study.md

// One part's file: its command line, and what it printed.
std::string study_part_page(const StudyRequest& request, const PartReport& part, const std::string& printed);

// --list: every part's command line, to run by hand.
std::string study_list_text(const StudyRequest& request);
std::string study_list_json(const StudyRequest& request);

}  // namespace kiln
