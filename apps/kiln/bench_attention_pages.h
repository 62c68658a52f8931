// The forms in which the attention studies show and store a report.
#pragma once

#include <string>
#include <vector>

#include "studies/attention/attention.h"
#include "report/tables/text_table.h"

namespace kiln::cli {

std::string attention_text(const AttentionReport& report);
std::string attention_markdown(const AttentionReport& report);
std::string attention_csv(const AttentionReport& report);
std::string attention_latex(const AttentionReport& report);
std::string attention_json(const AttentionReport& report);
std::string attention_page(const AttentionReport& report, PageFormat format);

// Lines for results.jsonl: each pass of the rows that were timed, and the rows that found no memory.
std::vector<std::string> attention_result_lines(const AttentionReport& report);

}  // namespace kiln::cli
