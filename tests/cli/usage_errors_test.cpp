// Every way to misuse kiln that usage_errors.txt lists: one line says what was wrong, another what to do. In
// this process, since a hundred starts of the program take longer than all of them.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/one_line.h"
#include "kiln/command_line.h"

namespace kiln::cli {
namespace {

struct UsageError {
  int lines = 0;        // of stderr
  std::string pattern;  // that one of them matches
  std::vector<std::string> args;
};

std::vector<UsageError> listed() {
  std::ifstream file(KILN_TESTS_FOLDER "/cli/usage_errors.txt");
  std::vector<UsageError> all;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::vector<std::string> words(1);
    for (const char c : line) {
      if (c == '\t') {
        words.emplace_back();
      } else {
        words.back() += c;
      }
    }
    if (words.size() < 2) continue;
    all.push_back({std::stoi(words[0]), words[1], {words.begin() + 2, words.end()}});
  }
  return all;
}

// What main() would print.
std::vector<std::string> complaint(const std::vector<std::string>& args) {
  try {
    const Request request = parse_command_line(args);
    if (request.run) request.run();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
    std::vector<std::string> lines = {"kiln: " + one_line(error.what())};
    if (!error.hint().empty()) lines.push_back("hint: " + one_line(error.hint()));
    return lines;
  }
  return {};
}

TEST(UsageErrors, EachIsAnsweredInOneClearLine) {
  const std::vector<UsageError> all = listed();
  EXPECT_GT(all.size(), 80U);
  for (const UsageError& e : all) {
    std::string typed = "kiln";
    for (const std::string& a : e.args) typed += " " + a;
    const std::vector<std::string> lines = complaint(e.args);
    EXPECT_EQ(lines.size(), static_cast<std::size_t>(e.lines)) << typed;
    bool matched = false;
    for (const std::string& line : lines)
      matched = matched || std::regex_search(line, std::regex(e.pattern, std::regex::extended));
    EXPECT_TRUE(matched) << typed << "\n  lacks " << e.pattern << "\n  says  "
                         << (lines.empty() ? "nothing" : lines.front());
  }
}

}  // namespace
}  // namespace kiln::cli
