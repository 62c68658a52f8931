// What a compared step's figures say: the gaps by cause, and the largest of them in sentences.
#pragma once

#include <string>
#include <vector>

#include "report/tables/text_table.h"
#include "studies/compare/compare.h"

namespace kiln {

// A column for each cause the step has: each sums to the step's, each row to its gap.
TextTable gap_table(const ComparedStep& step);

std::vector<std::string> compare_notes(const ComparedStep& step);

// "tiny, bf16, batch 4 of 128 tokens, full, preset optimized": what tells steps apart.
std::string name_of_step(const StepRow& row);

}  // namespace kiln
