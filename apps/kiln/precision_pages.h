// The studies of `kiln precision` for a terminal and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "studies/precision/running_sum_study.h"
#include "studies/precision/grad_accumulation_study.h"
#include "studies/precision/layer_norm_study.h"
#include "studies/precision/toy_model_study.h"

namespace kiln::cli {

std::string accumulate_text(const AccumulateReport& report);
std::string accumulate_json(const AccumulateReport& report);

std::string accumulation_text(const AccumulationReport& report);
std::string accumulation_json(const AccumulationReport& report);
// One of its other sums.
std::string sums_text(const SumTable& table);
nlohmann::ordered_json sums_json(const SumTable& table);

std::string toy_model_text(const ToyModelReport& report);
std::string toy_model_json(const ToyModelReport& report);

std::string layer_norm_text(const LayerNormReport& report);
std::string layer_norm_json(const LayerNormReport& report);
// "is fp32 still needed under bf16?", answered from the rows.
std::string layer_norm_answer(const LayerNormReport& report, DType dtype);

}  // namespace kiln::cli
