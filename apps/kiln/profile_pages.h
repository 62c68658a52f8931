// What `kiln profile` prints. Every figure and every word that judges comes from the traces.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "studies/format.h"
#include "studies/profile/profile.h"

namespace kiln::cli {

std::string profile_text(const ProfileReport& report);
std::string profile_markdown(const ProfileReport& report);
std::string profile_json(const ProfileReport& report);
std::vector<std::string> profile_result_lines(const ProfileReport& report);

// One table or some sentences, under a heading.
struct ProfileSection {
  std::string heading;
  TextTable table;       // may be empty
  std::size_t left = 1;  // columns of words
  std::vector<std::string> lines;
};
// In the order in which they are read.
std::vector<ProfileSection> profile_sections(const ProfileReport& report, const StepProfile& step);

// Why the traced step and the timer differ; what the traced step is made of.
std::string explain_difference(const StepProfile& step);

}  // namespace kiln::cli
