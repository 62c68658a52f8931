// The commands that a report names to fill its gaps are ones that kiln takes.
#include <gtest/gtest.h>

#include "base/choice.h"
#include "kiln/command_line.h"
#include "studies/report/chapters/chapter.h"
#include "support/has.h"

namespace kiln::cli {
namespace {

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    if (end > 0) words.emplace_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return words;
}

TEST(Report, NamesCommandsThatKilnTakes) {
  for (const Chapter& chapter : all_chapters())
    for (const Question& q : chapter.questions) {
      std::vector<std::string> words = words_of(q.fill);
      ASSERT_EQ(words.front(), "kiln") << q.heading;
      words.erase(words.begin());
      EXPECT_NO_THROW(parse_command_line(words)) << q.fill;
    }
}

TEST(Report, AskedWronglyItSaysWhatIsExpected) {
  const auto said = [](const std::vector<std::string>& args) {
    try {
      parse_command_line(args).run();
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string("done");
  };
  EXPECT_TRUE(has(said({"report", "--writeup", "ddpp"}), "--writeup"));
  EXPECT_TRUE(
      has(said({"report", "--writeup", "ddp", "--rows", "x.jsonl"}), "--writeup and --rows are both given"));
}

}  // namespace
}  // namespace kiln::cli
