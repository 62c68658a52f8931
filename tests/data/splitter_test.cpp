#include "data/splitter.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/random_text.h"
#include "data/unicode_classes.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

using Words = std::vector<std::string>;

Words words_of(const Splitter& splitter, std::string_view text) {
  std::vector<std::string_view> words;
  splitter.split(text, words);
  return {words.begin(), words.end()};
}

bool have_pcre2() { return !pcre2_version().empty(); }

TEST(Splitter, Gpt2OnKnownText) {
  const auto gpt2 = make_splitter("gpt2");
  EXPECT_EQ(words_of(*gpt2, "some text that i'll pre-tokenize"),
            (Words{"some", " text", " that", " i", "'ll", " pre", "-", "tokenize"}));
  EXPECT_EQ(words_of(*gpt2, "a   b\n\n  c 12x!? 's 'S  "),
            (Words{"a", "  ", " b", "\n\n ", " c", " 12", "x", "!?", " '", "s", " '", "S", "  "}));
  EXPECT_EQ(words_of(*gpt2, "\tx\n\ty"), (Words{"\t", "x", "\n", "\t", "y"}));
  EXPECT_EQ(words_of(*gpt2, "don't we've they're 'llama ''"),
            (Words{"don", "'t", " we", "'ve", " they", "'re", " '", "llama", " ''"}));
  EXPECT_EQ(words_of(*gpt2, "h\u00e9llo \u4e2d\u6587\u30001\u00bd"),
            (Words{"h\u00e9llo", " \u4e2d\u6587", "\u3000", "1\u00bd"}));
  EXPECT_EQ(words_of(*gpt2, ""), Words{});
}

TEST(Splitter, BytesThatAreNotUtf8AreWordsOfTheirOwn) {
  const auto gpt2 = make_splitter("gpt2");
  EXPECT_EQ(words_of(*gpt2, "ab\xff\xfe cd\xc3"), (Words{"ab", "\xff\xfe", " cd", "\xc3"}));
}

TEST(Splitter, Gpt2ByHandIsGpt2ByPcre2) {
  if (!have_pcre2()) GTEST_SKIP() << "built without PCRE2";
  const auto by_hand = make_gpt2_splitter();
  const auto by_pcre2 = make_pcre2_splitter(by_hand->regex(), true);
  for (uint64_t seed = 0; seed < 400; ++seed) {
    RandomText random(seed);
    const std::string text = seed % 4 == 0 ? random.bytes(200) : random.unicode(1 + random.below(200));
    ASSERT_EQ(words_of(*by_hand, text), words_of(*by_pcre2, text)) << "seed " << seed;
  }
}

TEST(Splitter, UnicodeTablesAreThoseOfPcre2) {
  if (!have_pcre2()) GTEST_SKIP() << "built without PCRE2";
  if (!pcre2_version().starts_with("10.42")) GTEST_SKIP() << "another version of Unicode";
  // "!" is in none of the classes: "!c" falls into two words exactly when c is in the class.
  const auto letters = make_pcre2_splitter("\\p{L}", false);
  const auto numbers = make_pcre2_splitter("\\p{N}", false);
  const auto spaces = make_pcre2_splitter("\\s", false);
  std::string text;
  for (char32_t c = 1; c <= 0xe0200; ++c) {
    if ((c >= 0xd800 && c <= 0xdfff) || (c > 0x3ffff && c < 0xe0000))
      continue;  // the last: nothing is assigned there
    text.assign(1, '!');
    append_utf8(text, c);
    const auto is = [&](const Splitter& s) {
      std::vector<std::string_view> words;
      s.split(text, words);
      return words.size() == 2;
    };
    const CharClass k = char_class(c);
    if (is(*letters) != (k == CharClass::letter) || is(*numbers) != (k == CharClass::number) ||
        is(*spaces) != (k == CharClass::space)) {
      FAIL() << "U+" << std::hex << static_cast<uint32_t>(c);
    }
  }
}

TEST(Splitter, OtherPatternsOnKnownText) {
  if (!have_pcre2()) GTEST_SKIP() << "built without PCRE2";
  const std::string text = "Hello'S  world12345!!\n\n\tFooBar  x";
  EXPECT_EQ(words_of(*make_splitter("cl100k"), text),
            (Words{"Hello", "'S", " ", " world", "123", "45", "!!\n\n", "\tFooBar", " ", " x"}));
  EXPECT_EQ(words_of(*make_splitter("llama3"), text), words_of(*make_splitter("cl100k"), text));
  EXPECT_EQ(words_of(*make_splitter("o200k"), text),
            (Words{"Hello'S", " ", " world", "123", "45", "!!\n\n", "\tFoo", "Bar", " ", " x"}));
}

TEST(Splitter, UnknownNamesAndBadExpressions) {
  EXPECT_EQ(KILN_ERROR_OF(make_splitter("gtp2")), "there is no pattern 'gtp2' | did you mean 'gpt2'?");
  if (!have_pcre2()) {
    EXPECT_EQ(KILN_ERROR_OF(make_splitter("cl100k")),
              "built without PCRE2: only the byte tokenizer, GPT-2's pattern and token shards work | install "
              "libpcre2-dev and build again");
    return;
  }
  EXPECT_NE(KILN_ERROR_OF(make_splitter_for_regex("(a")).find("is not understood: "), std::string::npos);
  // Every way through: an error, not hours.
  const auto slow = make_splitter_for_regex("(?:x+x+)+(?:y|zz)");
  std::vector<std::string_view> words;
  EXPECT_NE(KILN_ERROR_OF(slow->split(std::string(40, 'x'), words)).find("splitting text by"),
            std::string::npos);
}

TEST(Splitter, WhatIsNotMatchedIsKept) {
  if (!have_pcre2()) GTEST_SKIP() << "built without PCRE2";
  EXPECT_EQ(words_of(*make_splitter_for_regex("\\d+"), "ab12cd3"), (Words{"ab", "12", "cd", "3"}));
  EXPECT_EQ(words_of(*make_splitter_for_regex("x*"), "axxb"), (Words{"a", "xx", "b"}));
  EXPECT_FALSE(make_splitter_for_regex("\\d+")->can_cut());
}

// The promise encoding in parallel rests on.
TEST(Splitter, CutsChangeNothing) {
  for (const SplitPattern& p : split_patterns()) {
    if (p.name != "gpt2" && !have_pcre2()) continue;
    const auto splitter = make_splitter(p.name);
    std::size_t cuts = 0;
    for (uint64_t seed = 0; seed < 300; ++seed) {
      RandomText random(1000 + seed);
      const std::string text = seed % 5 == 0 ? random.bytes(300) : random.unicode(100);
      const Words whole = words_of(*splitter, text);
      for (std::size_t from = 0; from < text.size(); from += 1 + random.below(8)) {
        const std::size_t cut = splitter->find_cut(text, from);
        ASSERT_GE(cut, from);
        if (cut == text.size()) break;
        ++cuts;
        Words parts = words_of(*splitter, std::string_view(text).substr(0, cut));
        const Words rest = words_of(*splitter, std::string_view(text).substr(cut));
        parts.insert(parts.end(), rest.begin(), rest.end());
        ASSERT_EQ(parts, whole) << p.name << " seed " << seed << " cut " << cut;
      }
    }
    EXPECT_GT(cuts, 100U) << p.name;
  }
}

}  // namespace
}  // namespace kiln
