// In a terminal no line of a page is wider than it: tables lose columns from the right, and the page says how
// many.
#include "report/tables/terminal_page.h"

#include <gtest/gtest.h>

#include <sstream>

namespace kiln {
namespace {

StudyPage page_of_two_tables() {
  StudyPage page;
  page.place = "a machine with a name and measured ceilings that are too much to say in one short line";
  page.notes = {"a note that goes on for long enough to be broken somewhere in the middle of its words"};
  page.tables.push_back({"small", {{"op", "ms"}, {"add", "1.5"}}});
  page.tables.push_back({"large",
                         {{"operation", "first figure", "second figure", "third figure", "fourth figure"},
                          {"add", "1", "2", "3", "4"}}});
  return page;
}

std::size_t widest(const std::string& text) {
  std::istringstream lines(text);
  std::size_t widest = 0;
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
  return widest;
}

TEST(TerminalPage, IsAsWideAsTheTerminal) {
  const StudyPage page = page_of_two_tables();
  EXPECT_GT(widest(written(page, PageFormat::text)), 60U);
  for (const std::size_t width : {30U, 40U, 60U}) EXPECT_LE(widest(terminal_text(page, width)), width);
}

TEST(TerminalPage, KeepsTheFirstColumnsAndSaysWhatIsMissing) {
  const std::string text = terminal_text(page_of_two_tables(), 40);
  EXPECT_NE(text.find("operation  first figure  second figure\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("third"), std::string::npos) << text;
  EXPECT_NE(text.find("2 columns more with --wide"), std::string::npos) << text;
}

TEST(TerminalPage, IsWhatAPipeGetsWhereThereIsRoom) {
  StudyPage page = page_of_two_tables();
  EXPECT_EQ(terminal_text(page, 1000), written(page, PageFormat::text));
}

}  // namespace
}  // namespace kiln
