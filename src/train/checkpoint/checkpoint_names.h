// The names in a run's checkpoints folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kStateFile = "state.json";

std::string checkpoint_name(int64_t step);                              // "step-00000040"
std::optional<int64_t> step_of_checkpoint(std::string_view file_name);  // nothing for any other name
bool is_unfinished_checkpoint(std::string_view file_name);              // "step-00000040.tmp.3"

// Steps of the finished ones, the last first; none where there is no such folder.
std::vector<int64_t> checkpoint_steps(const std::string& checkpoints);

}  // namespace kiln
