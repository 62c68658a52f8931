// What a row of `bench warmup` consists of, and the page it makes.
#pragma once

#include <string>
#include <vector>

#include "report/tables/study_page.h"
#include "studies/warmup/warmup.h"

namespace kiln {

std::span<const ColumnForm> warmup_columns();

StudyPage warmup_page(const WarmupReport& report, bool wide = false);

// For results.jsonl.
std::vector<std::string> warmup_result_lines(const WarmupReport& report);

}  // namespace kiln
