// What a row of the attention studies consists of, and the page its rows make.
#pragma once

#include <string>
#include <vector>

#include "report/tables/study_page.h"
#include "studies/attention/attention.h"

namespace kiln {

// Of stored rows, which are passes: a timed cell has one for each.
std::span<const ColumnForm> attention_columns();

StudyPage attention_page(const AttentionReport& report, bool wide = false);

// For results.jsonl: each pass of the rows that were timed, and the rows that found no memory or no
// variant that takes them.
std::vector<std::string> attention_result_lines(const AttentionReport& report);

}  // namespace kiln
