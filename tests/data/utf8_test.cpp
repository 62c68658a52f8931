#include "data/utf8.h"

#include <gtest/gtest.h>

#include "data/base64.h"
#include "data/byte_level.h"
#include "data/random_text.h"
#include "data/unicode_classes.h"

namespace kiln {
namespace {

TEST(Utf8, EveryCodePointComesBack) {
  for (char32_t c = 0; c <= 0x10ffff; ++c) {
    if (c >= 0xd800 && c <= 0xdfff) continue;
    std::string text;
    append_utf8(text, c);
    const Utf8Char back = utf8_front(text);
    ASSERT_EQ(back.code, c);
    ASSERT_EQ(back.length, text.size());
    ASSERT_EQ(utf8_valid_prefix(text), text.size());
  }
}

TEST(Utf8, RefusesWhatIsNot) {
  for (const std::string& bad :
       {std::string("\x80"), std::string("\xc0\x80"), std::string("\xc1\xbf"), std::string("\xe0\x80\x80"),
        std::string("\xed\xa0\x80"), std::string("\xf0\x80\x80\x80"), std::string("\xf4\x90\x80\x80"),
        std::string("\xf5\x80\x80\x80"), std::string("\xff"), std::string("\xe4\xb8"), std::string("\xc3"),
        std::string("\xc3"
                    "A")}) {
    EXPECT_EQ(utf8_front(bad).length, 0U);
    EXPECT_EQ(utf8_valid_prefix("0123456789ab" + bad), 12U);
  }
}

TEST(UnicodeClasses, OfSomeCharacters) {
  EXPECT_EQ(char_class(U'a'), CharClass::letter);
  EXPECT_EQ(char_class(0x4e2d), CharClass::letter);
  EXPECT_EQ(char_class(U'7'), CharClass::number);
  EXPECT_EQ(char_class(0xbd), CharClass::number);    // one half
  EXPECT_EQ(char_class(0x2167), CharClass::number);  // roman eight
  EXPECT_EQ(char_class(U'\n'), CharClass::space);
  EXPECT_EQ(char_class(0x3000), CharClass::space);
  EXPECT_EQ(char_class(0x200b), CharClass::other);  // zero width space is none
  EXPECT_EQ(char_class(0x180e), CharClass::other);
  EXPECT_EQ(char_class(U'!'), CharClass::other);
  EXPECT_EQ(char_class(0x300), CharClass::other);  // a mark
}

TEST(ByteLevel, AlphabetOfGpt2) {
  EXPECT_EQ(to_byte_level(" a\n"), "\u0120a\u010a");
  EXPECT_EQ(to_byte_level(std::string(1, '\0')), "\u0100");
  EXPECT_EQ(to_byte_level("\xad"), "\u0143");
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  EXPECT_EQ(from_byte_level(to_byte_level(all)), all);
  EXPECT_EQ(from_byte_level(" "), std::nullopt);
  EXPECT_EQ(from_byte_level("\u0144"), std::nullopt);
  EXPECT_EQ(from_byte_level("\xff"), std::nullopt);
}

TEST(Base64, RoundTripAndRefusals) {
  EXPECT_EQ(to_base64("hello"), "aGVsbG8=");
  RandomText random(1);
  for (std::size_t n = 0; n < 50; ++n) {
    const std::string bytes = random.bytes(n);
    EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
  }
  for (const char* bad :
       {"a", "aG", "aG=", "aG==b", "====", "a===", "aGVsbG8", "aGVs bG8=", "aGVsbG9=", "aG=s"})
    EXPECT_EQ(from_base64(bad), std::nullopt) << bad;
}

}  // namespace
}  // namespace kiln
