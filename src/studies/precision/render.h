// The pages of `kiln precision`.
#pragma once

#include <string>

#include "report/tables/study_page.h"
#include "studies/precision/grad_accumulation_study.h"
#include "studies/precision/layer_norm_study.h"
#include "studies/precision/running_sum_study.h"
#include "studies/precision/toy_model_study.h"

namespace kiln {

StudyPage running_sum_page(const RunningSumReport& report);

StudyPage grad_accumulation_page(const GradAccumulationReport& report);
// One of its other sums.
Json sums_json(const SumTable& table);
PageTable sums_table(const SumTable& table);

StudyPage toy_model_page(const ToyModelReport& report);

StudyPage layer_norm_page(const LayerNormReport& report);
// "is fp32 still needed under bf16?", answered from the rows.
std::string layer_norm_answer(const LayerNormReport& report, DType dtype);

}  // namespace kiln
