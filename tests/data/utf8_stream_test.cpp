#include "data/utf8_stream.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/utf8.h"

namespace kiln {
namespace {

using namespace std::string_literals;

const std::string kText = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";  // 1, 2, 3 and 4 bytes

// U+FFFD so many times, and what follows.
std::string broken(int count, std::string_view rest = {}) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "\xef\xbf\xbd";
  text += rest;
  return text;
}

std::string stream(const std::string& text, std::size_t bytes_at_once) {
  Utf8Stream s;
  std::string shown;
  for (std::size_t i = 0; i < text.size(); i += bytes_at_once) {
    const std::string piece = s.push(std::string_view(text).substr(i, bytes_at_once));
    EXPECT_EQ(utf8_valid_prefix(piece), piece.size()) << "half a character was shown";
    shown += piece;
  }
  return shown + s.finish();
}

TEST(Utf8Stream, ShowsWholeCharactersHoweverTheyCome) {
  for (std::size_t n = 1; n <= kText.size(); ++n) EXPECT_EQ(stream(kText, n), kText) << n;
}

TEST(Utf8Stream, ShowsACharacterAsSoonAsItIsThere) {
  Utf8Stream s;
  EXPECT_EQ(s.push("x\xe2"), "x");
  EXPECT_EQ(s.push("\x82"), "");
  EXPECT_EQ(s.push("\xacy"), "\xe2\x82\xacy");
  EXPECT_EQ(s.finish(), "");
}

TEST(Utf8Stream, ReplacesWhatCannotBecomeACharacter) {
  for (std::size_t n = 1; n <= 3; ++n) {
    EXPECT_EQ(stream("a\xff\x62", n), cat("a", broken(1, "b")));
    EXPECT_EQ(stream("\xe2\x82\x41", n), broken(1, "A"));  // never completed
    EXPECT_EQ(stream("\xed\xa0\x80", n), broken(3));       // a surrogate
    EXPECT_EQ(stream("\xe0\x80.", n), broken(2, "."));     // overlong
    EXPECT_EQ(stream("\xf4\x90.", n), broken(2, "."));     // beyond U+10FFFF
    EXPECT_EQ(stream("\xf0\x9f\x98", n), broken(1));       // at the end
    EXPECT_EQ(stream("\xc3\xc3\xa9", n), broken(1, "\xc3\xa9"));
    EXPECT_EQ(stream("\0\x80"s, n), cat("\0"s, broken(1)));
  }
}

TEST(Utf8Stream, EveryStringOfFourBytesComesOutValid) {
  static constexpr unsigned char kBytes[] = {0x41, 0x80, 0x9f, 0xa0, 0xbf, 0xc2,
                                             0xe0, 0xed, 0xf0, 0xf4, 0xff};
  for (const auto a : kBytes) {
    for (const auto b : kBytes) {
      for (const auto c : kBytes) {
        const std::string text = {static_cast<char>(a), static_cast<char>(b), static_cast<char>(c), 'z'};
        const std::string whole = stream(text, 4);
        EXPECT_EQ(utf8_valid_prefix(whole), whole.size());
        EXPECT_EQ(stream(text, 1), whole);
      }
    }
  }
}

}  // namespace
}  // namespace kiln
