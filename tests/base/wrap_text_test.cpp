#include "base/wrap_text.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

TEST(WrapText, AListGoesOnUnderItsSecondColumn) {
  EXPECT_EQ(
      wrap_text("Options:\n  --steps N    training steps, as many as are asked for\n  --help       this", 34),
      "Options:\n"
      "  --steps N    training steps, as\n"
      "               many as are asked\n"
      "               for\n"
      "  --help       this");
}

TEST(WrapText, ProseGoesOnUnderItsFirstWord) {
  EXPECT_EQ(wrap_text("one two three four", 9), "one two\nthree\nfour");
  EXPECT_EQ(wrap_text("  one two three", 9), "  one two\n  three");
}

TEST(WrapText, WhatFitsStaysAsItIs) {
  const std::string text = "a  b   c\n\n  --x    y\n";
  EXPECT_EQ(wrap_text(text, 20), text);
  EXPECT_EQ(wrap_text("", 20), "");
}

TEST(WrapText, ALongWordStaysWholeAndLettersAreCountedNotBytes) {
  EXPECT_EQ(wrap_text("see https://example.org/a/long/path now", 10),
            "see\nhttps://example.org/a/long/path\nnow");
  EXPECT_EQ(wrap_text("éééé éééé", 9), "éééé éééé");
  EXPECT_EQ(wrap_text("éééé éééé", 8), "éééé\néééé");
}

TEST(WrapText, ANarrowTerminalLosesTheColumnNotTheWords) {
  EXPECT_EQ(wrap_text("  --a-very-long-option NAME    text of it", 20),
            "  --a-very-long-option\n  NAME text of it");
}

}  // namespace
}  // namespace kiln
