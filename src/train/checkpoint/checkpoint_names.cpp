#include "train/checkpoint/checkpoint_names.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "base/folder.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kPrefix = "step-";

bool all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

std::string checkpoint_name(int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
  return name;
}

std::optional<int64_t> step_of_checkpoint(std::string_view name) {
  if (!name.starts_with(kPrefix) || !all_digits(name.substr(kPrefix.size()))) return std::nullopt;
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  if (error != std::errc{} || checkpoint_name(step) != name) return std::nullopt;
  return step;
}

bool is_unfinished_checkpoint(std::string_view name) {
  const std::size_t dot = name.find(".tmp.");
  return dot != std::string_view::npos && step_of_checkpoint(name.substr(0, dot)) &&
         all_digits(name.substr(dot + 5));
}

std::vector<int64_t> checkpoint_steps(const std::string& checkpoints) {
  std::vector<int64_t> steps;
  std::error_code error;
  if (!fs::exists(checkpoints, error)) return steps;
  try {
    for (const FolderEntry& e : list_folder(checkpoints)) {
      if (const auto step = step_of_checkpoint(e.name)) steps.push_back(*step);
    }
  } catch (const fs::filesystem_error& e) {
    throw Error(cat("cannot read the folder ", checkpoints, ": ", e.code().message()));
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

}  // namespace kiln
