// The forms in which the attention studies show and store a report.
#pragma once

#include <string>
#include <vector>

#include "kiln/bench_attention.h"

namespace kiln::cli {

std::string attention_text(const AttentionReport& report);
std::string attention_markdown(const AttentionReport& report);
std::string attention_csv(const AttentionReport& report);
std::string attention_json(const AttentionReport& report);

// Lines for results.jsonl: each pass of the rows that were timed, and the rows that found no memory.
std::vector<std::string> attention_result_lines(const AttentionReport& report);

}  // namespace kiln::cli
