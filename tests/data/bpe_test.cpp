// The trainer and the encoder against their slow definitions.
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "data/bpe_merger.h"
#include "data/bpe_tokenizer.h"
#include "data/bpe_trainer.h"
#include "data/byte_tokenizer.h"
#include "data/encode_text.h"
#include "data/naive_bpe.h"
#include "data/random_text.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

BpeModel train(std::string_view text, int32_t vocab_size, int threads = 1, std::string_view pattern = "gpt2",
               const std::vector<std::string>& specials = {std::string(kEndOfText)}) {
  const auto splitter = make_splitter(pattern);
  std::vector<SpecialToken> tokens;
  for (const std::string& s : specials) tokens.push_back({s, static_cast<int32_t>(tokens.size())});
  WordCounts counts(splitter, SpecialTokens(tokens));
  ThreadPool pool(threads);
  counts.add(text, pool);
  return train_bpe(counts, splitter, {.vocab_size = vocab_size, .specials = specials, .progress = {}});
}

std::map<std::string, int64_t> count_words(std::string_view text) {
  std::vector<std::string_view> words;
  make_splitter("gpt2")->split(text, words);
  std::map<std::string, int64_t> counts;
  for (const std::string_view w : words) ++counts[std::string(w)];
  return counts;
}

std::vector<std::pair<std::string, std::string>> spelled(const BpeModel& m) {
  std::vector<std::pair<std::string, std::string>> merges;
  for (const BpeMerge& g : m.merges)
    merges.emplace_back(m.tokens[static_cast<std::size_t>(g.left)],
                        m.tokens[static_cast<std::size_t>(g.right)]);
  return merges;
}

TEST(BpeTrainer, TheTextbookExample) {
  // Sennrich's corpus; ties go to the lexicographically greater pair: "st" before "es".
  std::string text;
  const auto add = [&](const char* word, int times) {
    for (int i = 0; i < times; ++i) text += word;
  };
  add("low\n", 5);
  add("lower\n", 2);
  add("widest\n", 3);
  add("newest\n", 6);
  const auto merges = spelled(train(text, 256 + 6 + 1));
  using P = std::pair<std::string, std::string>;
  EXPECT_EQ(merges,
            (std::vector<P>{{"s", "t"}, {"e", "st"}, {"o", "w"}, {"l", "ow"}, {"w", "est"}, {"n", "e"}}));
}

TEST(BpeTrainer, IsItsDefinition) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    RandomText random(seed);
    const std::string text = seed % 3 == 0 ? random.prose(400)
                             : seed % 3 == 1
                                 ? random.unicode(600)
                                 : std::string(random.below(50), 'a') + random.prose(50) + random.bytes(300);
    const BpeModel fast = train(text, 256 + 200 + 1);
    const NaiveBpe slow = naive_train(count_words(text), 256 + 200);
    ASSERT_EQ(fast.tokens, slow.tokens) << "seed " << seed;
    ASSERT_EQ(spelled(fast), slow.merges) << "seed " << seed;
  }
}

TEST(BpeTrainer, RunsOfOneLetterAndWordsThatHitTheSameTokenTwice) {
  for (const std::string& text :
       {std::string("aaaaaaaaaaaaaaaaaaaa aaa aa a"), std::string("abcabc abc bcab cabca abab babcb"),
        std::string("abababababab ba ab bab aba")}) {
    const NaiveBpe slow = naive_train(count_words(text), 400);
    const BpeModel fast = train(text, 401);
    EXPECT_EQ(fast.tokens, slow.tokens);
    EXPECT_EQ(spelled(fast), slow.merges);
  }
}

TEST(BpeTrainer, ThreadsLeaveNoTrace) {
  RandomText random(7);
  const std::string text = random.prose(200'000);  // several pieces
  ASSERT_GT(text.size(), 1'000'000U);
  const BpeModel one = train(text, 600, 1), three = train(text, 600, 3);
  EXPECT_EQ(one.tokens, three.tokens);
  EXPECT_EQ(spelled(one), spelled(three));
}

TEST(BpeTrainer, SpecialTokensAreNotLearntFrom) {
  const std::string text = "ab<|endoftext|>ab<|endoftext|>cd";
  const BpeModel m = train(text, 300);
  EXPECT_EQ(spelled(m), (std::vector<std::pair<std::string, std::string>>{{"a", "b"}, {"c", "d"}}));
  EXPECT_EQ(m.vocab_size(), 259);  // smaller than requested: nothing is left to merge
  EXPECT_EQ(m.specials.id_of(kEndOfText), 258);
}

TEST(BpeTrainer, RefusesAVocabularyThatCannotBe) {
  EXPECT_EQ(KILN_ERROR_OF(train("abc", 256)),
            "a vocabulary of 256; expected 257 (256 bytes and 1 special tokens) to 4000000");
  EXPECT_EQ(train("abc", 257).merges.size(), 0U);
  EXPECT_EQ(KILN_ERROR_OF(train("abc", 300, 1, "gpt2", {"<s>", "<s>"})),
            "special token '<s>' is given twice");
}

TEST(BpeTokenizer, EncodesByTheDefinition) {
  RandomText random(3);
  const BpeModel model = train(random.prose(3000) + random.unicode(2000), 700);
  const auto merges = spelled(model);
  const auto tokenizer = make_bpe_tokenizer(model);
  for (uint64_t seed = 0; seed < 30; ++seed) {
    RandomText r(100 + seed);
    const std::string text = seed % 3 == 0 ? r.prose(60) : seed % 3 == 1 ? r.unicode(150) : r.bytes(100);
    std::vector<std::string> expected;
    std::vector<std::string_view> words;
    model.splitter->split(text, words);
    for (const std::string_view w : words) {
      for (std::string& s : naive_encode(std::string(w), merges)) expected.push_back(std::move(s));
    }
    std::vector<std::string> got;
    for (const int32_t id : tokenizer->encode(text, SpecialText::plain))
      got.emplace_back(tokenizer->bytes_of(id));
    ASSERT_EQ(got, expected) << "seed " << seed;
  }
}

// Words over 64 bytes take another way through the merger.
TEST(BpeTokenizer, LongWordsAreMergedAlike) {
  RandomText random(5);
  const BpeModel model = train(random.prose(2000), 500);
  const auto merges = spelled(model);
  const auto tokenizer = make_bpe_tokenizer(model);
  for (const std::size_t length : {63U, 64U, 65U, 66U, 200U, 500U}) {
    std::string word;
    while (word.size() < length) {
      for (const char c : random.prose(3)) {
        if (c >= 'a') word += c;
      }
    }
    word.resize(length);
    std::vector<std::string> got;
    for (const int32_t id : tokenizer->encode(word)) got.emplace_back(tokenizer->bytes_of(id));
    ASSERT_EQ(got, naive_encode(word, merges)) << length;
  }
}

TEST(BpeTokenizer, AWordOfAMillionLettersIsNoTrouble) {
  const auto tokenizer = make_bpe_tokenizer(train(std::string(100, 'a') + " ab", 270));
  const std::string text(1'000'000, 'a');
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

TEST(BpeTokenizer, RoundTripOfAnything) {
  RandomText random(11);
  const auto bpe = make_bpe_tokenizer(train(random.prose(500) + random.unicode(500), 400));
  const auto bytes = make_byte_tokenizer();
  for (const Tokenizer* t : {static_cast<const Tokenizer*>(bpe.get()), bytes.get()}) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      RandomText r(seed);
      for (const std::string& text : {r.bytes(r.below(400)), r.unicode(r.below(300)), r.prose(20)}) {
        const auto ids = t->encode(text);
        for (const int32_t id : ids) ASSERT_TRUE(id >= 0 && id < t->vocab_size());
        ASSERT_EQ(t->decode(ids), text);
      }
    }
  }
}

TEST(BpeTokenizer, SpecialTokensAreRecognisedOrNot) {
  const auto t =
      make_bpe_tokenizer(train("hello hello", 300, 1, "gpt2", {"<|endoftext|>", "<|end|>", "<|end|>x"}));
  const auto id = [&](std::string_view s) { return *t->specials().id_of(s); };
  const auto plain = [&](std::string_view s) { return t->encode(s, SpecialText::plain); };
  std::vector<int32_t> expected = plain("a");
  expected.push_back(id("<|endoftext|>"));
  expected.push_back(id("<|endoftext|>"));
  for (const int32_t i : plain("b<|endof")) expected.push_back(i);
  EXPECT_EQ(t->encode("a<|endoftext|><|endoftext|>b<|endof"), expected);
  EXPECT_EQ(t->encode("<|end|>x"), (std::vector<int32_t>{id("<|end|>x")}));  // the longest
  EXPECT_EQ(t->specials().end_of_text(), id("<|endoftext|>"));
  EXPECT_GT(plain("<|endoftext|>").size(), 1U);
  EXPECT_EQ(t->decode(t->encode("a<|endoftext|>b")), "a<|endoftext|>b");
}

TEST(BpeTokenizer, UnknownIdsAreRefused) {
  const auto t = make_bpe_tokenizer(train("hello", 257));
  EXPECT_EQ(KILN_ERROR_OF(t->decode(std::vector<int32_t>{257})), "token 257 is not in the vocabulary of 257");
  EXPECT_EQ(KILN_ERROR_OF(t->decode(std::vector<int32_t>{-1})), "token -1 is not in the vocabulary of 257");
  EXPECT_EQ(KILN_ERROR_OF(make_byte_tokenizer()->bytes_of(257)),
            "token 257 is not in the byte tokenizer's vocabulary of 257");
}

TEST(ByteTokenizer, IsTheBytes) {
  const auto t = make_byte_tokenizer();
  EXPECT_EQ(t->vocab_size(), 257);
  EXPECT_EQ(t->encode("a\xff<|endoftext|>"), (std::vector<int32_t>{97, 255, 256}));
}

TEST(ByteTokenizer, ForAModelOf256TokensIsTheBytesAlone) {
  const auto t = make_byte_tokenizer(/*end_of_text=*/false);
  EXPECT_EQ(t->vocab_size(), 256);
  EXPECT_EQ(t->encode("a\xff<|e"), (std::vector<int32_t>{97, 255, '<', '|', 'e'}));
  EXPECT_FALSE(t->specials().end_of_text());
  EXPECT_NE(t->fingerprint(), make_byte_tokenizer()->fingerprint());
  EXPECT_EQ(KILN_ERROR_OF(t->bytes_of(256)), "token 256 is not in the byte tokenizer's vocabulary of 256");
}

// Pieces of 128 KiB on several threads, cut wherever a cut is allowed, and specials that contain such places.
TEST(EncodeText, ThreadsAndPiecesChangeNothing) {
  RandomText random(21);
  std::string text;
  while (text.size() < 900'000) {
    text += random.prose(2000) + random.unicode(300);
    if (random.below(3) == 0) text += "<|end of text|>";
  }
  text += std::string(300'000, 'x') + random.bytes(1000);  // no place to cut
  const auto bpe = make_bpe_tokenizer(train(text, 500, 2, "gpt2", {"<|end of text|>"}));
  const auto bytes = make_byte_tokenizer();
  for (const Tokenizer* t : {static_cast<const Tokenizer*>(bpe.get()), bytes.get()}) {
    for (const SpecialText special : {SpecialText::recognise, SpecialText::plain}) {
      const auto whole = t->encode(text, special);
      for (const int threads : {1, 2, 5}) {
        ThreadPool pool(threads);
        ASSERT_EQ(encode_text(*t, text, special, pool), whole) << threads;
      }
    }
  }
}

TEST(BpeMerger, RankLimitAndEqualRanks) {
  // Tokens 0 1 2; (0,0)->3 and (0,1)->4 with equal rank: the leftmost goes first.
  const std::vector<BpeMerge> merges = {{0, 0, 3, 5}, {0, 1, 4, 5}, {3, 1, 5, 9}};
  const BpeMerger merger(merges);
  const auto run = [&](std::vector<int32_t> s, int32_t limit = BpeMerger::kNoRank) {
    merger.merge(s, limit);
    return s;
  };
  EXPECT_EQ(run({0, 0, 1}), (std::vector<int32_t>{5}));
  EXPECT_EQ(run({0, 0, 1}, 9), (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(run({2, 0, 1, 0, 0}), (std::vector<int32_t>{2, 4, 3}));
  EXPECT_EQ(run({}), (std::vector<int32_t>{}));
}

}  // namespace
}  // namespace kiln
