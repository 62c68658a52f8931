// What `kiln study` says and writes (docs/measuring.md lists the keys).
#pragma once

#include <string>

#include "studies/course/course.h"

namespace kiln::cli {

std::string study_text(const StudyReport& report);
std::string study_markdown(const StudyReport& report);  // study.md
std::string study_json(const StudyReport& report);      // study.json, and --json

// One part's file: its command line, and what it printed.
std::string study_part_page(const StudyRequest& request, const PartReport& part, const std::string& printed);

// --list: every part's command line, to run by hand.
std::string study_list_text(const StudyRequest& request);
std::string study_list_json(const StudyRequest& request);

}  // namespace kiln::cli
