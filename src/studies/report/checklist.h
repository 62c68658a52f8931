// The checklist of a report: every problem with the command that answers it, how far it is answered, and by
// which rows and figures. What is missing, stale or unverified stands out.
#pragma once

#include <vector>

#include "report/document/document.h"
#include "studies/report/chapters/answered.h"

namespace kiln {

DocumentSection checklist_section(const std::vector<AnsweredChapter>& chapters);

// "question-1-1-3-b": where the answer is in the page.
std::string anchor_of(const Question& question);

}  // namespace kiln
