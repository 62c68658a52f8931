#include "data/text_source.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

TEST(TextSource, OneFile) {
  const TempFolder folder;
  const std::string path = folder.write("a.txt", "h\u00e9llo\n");
  const TextSource source(path);
  ASSERT_EQ(source.files().size(), 1U);
  EXPECT_EQ(source.bytes(), 7U);
}

TEST(TextSource, AFolderInTheOrderOfPathsWithWhatIsNotTextPassedOver) {
  const TempFolder folder;
  folder.write("b.txt", "bb");
  folder.write("a/z.md", "z");
  folder.write("a/c/d", "dd");
  folder.write("B.txt", "B");
  folder.write("empty", "");
  folder.write("image.png", std::string("\x89PNG\0\x01", 6));
  folder.write("zeros", std::string("ab\0cd", 5));
  folder.write("latin1.txt", "caf\xe9");
  folder.write(".hidden", "x");
  folder.write(".git/config", "x");
  std::filesystem::create_directory_symlink(folder / "a", folder / "link");
  const TextSource source(folder.path());
  std::vector<std::string> names;
  for (const TextFile& f : source.files()) names.push_back(f.path.substr(folder.path().size() + 1));
  EXPECT_EQ(names, (std::vector<std::string>{"B.txt", "a/c/d", "a/z.md", "b.txt"}));
  EXPECT_EQ(source.bytes(), 6U);
  std::vector<std::string> skipped;
  for (const auto& s : source.skipped())
    skipped.push_back(s.path.substr(folder.path().size() + 1) + ": " + s.reason);
  EXPECT_EQ(skipped, (std::vector<std::string>{"empty: it is empty",
                                               "image.png: it is not UTF-8: the fault is at byte offset 0",
                                               "latin1.txt: it is not UTF-8: the fault is at byte offset 3",
                                               "zeros: it is binary: a zero byte at offset 2"}));
}

TEST(TextSource, WhatCannotBeUsedIsSaid) {
  const TempFolder folder;
  EXPECT_EQ(KILN_ERROR_OF(TextSource(folder / "none")),
            "there is no text " + folder / "none" + " | give a text file or a folder of them");
  EXPECT_EQ(KILN_ERROR_OF(TextSource(folder.path())), "the folder " + folder.path() + " holds no text");
  const std::string empty = folder.write("e", "");
  EXPECT_EQ(KILN_ERROR_OF(TextSource(empty)), empty + " cannot be used as text: it is empty");
  const std::string binary = folder.write("b", std::string("a\0", 2));
  EXPECT_EQ(KILN_ERROR_OF(TextSource(binary)),
            binary + " cannot be used as text: it is binary: a zero byte at offset 1");
  EXPECT_NE(KILN_ERROR_OF(TextSource(folder.path())).find("of 2 files the first is"), std::string::npos);
}

std::string joined(const std::vector<TextRange>& ranges) {
  std::string text;
  for (const TextRange& r : ranges) text += MappedFile(r.path).text().substr(r.begin, r.end - r.begin);
  return text;
}

TEST(SplitText, NothingIsLostOrMovedAndLinesStayWhole) {
  const TempFolder folder;
  std::string all;
  for (const char* name : {"a", "b", "c"}) {
    std::string text;
    for (int i = 0; i < 50; ++i) text += std::string(name) + " line " + std::to_string(i) + "\n";
    folder.write(name, text);
    all += text;
  }
  const TextSource source(folder.path());
  for (const double fraction : {0.0, 0.01, 0.1, 0.34, 0.5, 0.9}) {
    const TextSplit split = split_text(source, fraction);
    const std::string train = joined(split.train), validation = joined(split.validation);
    EXPECT_EQ(train + validation, all);
    EXPECT_TRUE(train.ends_with('\n'));
    EXPECT_NEAR(static_cast<double>(validation.size()), fraction * static_cast<double>(all.size()), 20);
  }
  EXPECT_TRUE(split_text(source, 0).validation.empty());
  EXPECT_NE(KILN_ERROR_OF(split_text(source, 1.0)).find("a validation part of 1"), std::string::npos);
  EXPECT_NE(KILN_ERROR_OF(split_text(source, -0.1)).find("expected 0 or more"), std::string::npos);
}

TEST(SplitText, ALineWithoutEndIsCutBetweenCharacters) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "\u4e2d";
  const TextSource source(folder.write("a", text));
  for (int percent = 1; percent < 95; percent += 3) {
    const double fraction = percent / 100.0;
    const TextSplit split = split_text(source, fraction);
    EXPECT_EQ(joined(split.train).size() % 3, 0U);
    EXPECT_EQ(joined(split.train) + joined(split.validation), text);
  }
}

}  // namespace
}  // namespace kiln
