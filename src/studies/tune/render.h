// The pages of `kiln tune` and `kiln tune attention`: a table for each step or shape, and what the file
// holds.
#pragma once

#include "report/tables/study_page.h"
#include "studies/tune/tune.h"
#include "studies/tune/tune_attention.h"

namespace kiln {

StudyPage tune_page(const TuneReport& report);
StudyPage tune_attention_page(const TuneAttentionReport& report);

}  // namespace kiln
