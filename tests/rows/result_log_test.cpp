#include "rows/result_log.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

TEST(ResultLog, RowsComeBackInTheOrderTheyWereWritten) {
  const TempFolder folder;
  EXPECT_TRUE(read_results(folder.path()).rows.empty());
  append_results(folder.path(), {R"({"a":1})", R"({"a":2})"});
  append_results(folder.path(), {});
  append_results(folder.path(), {R"({"a":3})"});
  const StoredResults stored = read_results(folder.path());
  ASSERT_EQ(stored.rows.size(), 3U);
  EXPECT_EQ(stored.rows[2].at("a"), 3);
  EXPECT_TRUE(stored.notes.empty());
  EXPECT_EQ(repair_results(folder.path()), "");
}

TEST(ResultLog, ATornLastLineIsRemovedAndSaid) {
  const TempFolder folder;
  folder.write("results.jsonl", "{\"a\":1}\n{\"a\":2}\n{\"a\":3,\"b\":[1,2");
  EXPECT_NE(repair_results(folder.path()).find("cut off after 15 bytes"), std::string::npos);
  EXPECT_EQ(folder.read("results.jsonl"), "{\"a\":1}\n{\"a\":2}\n");
  append_results(folder.path(), {R"({"a":4})"});
  EXPECT_EQ(read_results(folder.path()).rows.size(), 3U);
  EXPECT_EQ(repair_results(folder.path()), "");
  folder.write("results.jsonl", "{\"a\"");
  EXPECT_NE(repair_results(folder.path()), "");
  EXPECT_EQ(folder.read("results.jsonl"), "");
}

TEST(ResultLog, AWholeLineWithoutItsEndIsKept) {
  const TempFolder folder;
  folder.write("results.jsonl", "{\"a\":1}\n{\"a\":2}");
  EXPECT_NE(repair_results(folder.path()).find("got one"), std::string::npos);
  EXPECT_EQ(folder.read("results.jsonl"), "{\"a\":1}\n{\"a\":2}\n");
}

TEST(ResultLog, LinesThatAreNoRowsAreLeftOutByNumber) {
  const TempFolder folder;
  folder.write("results.jsonl", "{\"a\":1}\nnonsense\n[1]\n\n{\"a\":2}\n");
  const StoredResults stored = read_results(folder.path());
  EXPECT_EQ(stored.rows.size(), 2U);
  ASSERT_EQ(stored.notes.size(), 2U);
  EXPECT_NE(stored.notes[0].find("results.jsonl:2"), std::string::npos) << stored.notes[0];
  EXPECT_NE(stored.notes[1].find("results.jsonl:3"), std::string::npos) << stored.notes[1];
}

TEST(ResultLog, AFolderInItsPlaceIsNamed) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "results.jsonl");
  EXPECT_NE(KILN_ERROR_OF(read_results(folder.path())).find("is a folder"), std::string::npos);
}

TEST(ResultLog, AFolderThatCannotBeWrittenIsNamed) {
  EXPECT_NE(KILN_ERROR_OF(append_results("/dev/null/x", {})).find("cannot write /dev/null/x/results.jsonl"),
            std::string::npos);
}

}  // namespace
}  // namespace kiln
