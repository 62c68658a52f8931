// tokenizer.json, vocab.json + merges.txt and tiktoken files: read, written, and refused.
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/json.h"
#include "data/bpe_trainer.h"
#include "data/byte_tokenizer.h"
#include "data/hf_tokenizer.h"
#include "data/load_tokenizer.h"
#include "data/random_text.h"
#include "data/tiktoken_file.h"
#include "data/vocab_merges.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

BpeModel trained(std::string_view pattern = "gpt2") {
  RandomText random(2);
  const auto splitter = make_splitter(pattern);
  WordCounts counts(splitter, SpecialTokens(std::vector<SpecialToken>{{std::string(kEndOfText), 0}}));
  ThreadPool pool(1);
  counts.add(random.prose(3000) + random.unicode(1000), pool);
  return train_bpe(counts, splitter,
                   {.vocab_size = 500, .specials = {std::string(kEndOfText)}, .progress = {}});
}

std::string sample() {
  RandomText random(77);
  return random.prose(300) + "<|endoftext|>" + random.unicode(300) + random.bytes(100);
}

void expect_same_ids(const BpeModel& a, const BpeModel& b) {
  const auto x = make_bpe_tokenizer(a), y = make_bpe_tokenizer(b);
  EXPECT_EQ(x->encode(sample()), y->encode(sample()));
  EXPECT_EQ(x->fingerprint(), y->fingerprint());
  EXPECT_EQ(x->vocab_size(), y->vocab_size());
}

bool have_pcre2() { return !pcre2_version().empty(); }

TEST(HfTokenizer, RoundTrip) {
  const BpeModel model = trained();
  const std::string text = hf_tokenizer_json(model);
  expect_same_ids(model, parse_hf_tokenizer(text, "t"));
  const Json page = Json::parse(text);
  EXPECT_EQ(page["model"]["type"], "BPE");
  EXPECT_EQ(page["pre_tokenizer"]["type"], "ByteLevel");
  EXPECT_EQ(page["added_tokens"][0]["content"], kEndOfText);
  EXPECT_EQ(page["model"]["vocab"]["\u0120"], 32);
  EXPECT_EQ(hf_tokenizer_json(parse_hf_tokenizer(text, "t")), text);
}

TEST(HfTokenizer, RoundTripOfASplitPattern) {
  if (!have_pcre2()) GTEST_SKIP() << "built without PCRE2";
  for (const char* pattern : {"cl100k", "o200k"}) {
    const BpeModel model = trained(pattern);
    const std::string text = hf_tokenizer_json(model);
    EXPECT_EQ(Json::parse(text)["pre_tokenizer"]["pretokenizers"][1]["use_regex"], false);
    expect_same_ids(model, parse_hf_tokenizer(text, "t"));
  }
}

TEST(HfTokenizer, MergesAsPairsAndOtherHarmlessThings) {
  const BpeModel model = trained();
  Json page = Json::parse(hf_tokenizer_json(model));
  Json& merges = page["model"]["merges"];
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const std::string line = merges[i].text();
    merges[i] = {line.substr(0, line.find(' ')), line.substr(line.find(' ') + 1)};
  }
  page["post_processor"] = {{"type", "Sequence"},
                            {"processors", {{{"type", "ByteLevel"}}, {{"type", "TemplateProcessing"}}}}};
  page["model"]["unk_token"] = "";
  page["model"]["end_of_word_suffix"] = "";
  page["model"].erase("ignore_merges");
  page["pre_tokenizer"].erase("use_regex");
  expect_same_ids(model, parse_hf_tokenizer(page.dump(), "t"));
}

TEST(HfTokenizer, IgnoreMergesTakesWholeWords) {
  BpeModel model = trained();
  Json page = Json::parse(hf_tokenizer_json(model));
  // "kilo" as a token that no merge makes.
  page["model"]["vocab"]["qqq"] = 500;
  page["model"]["ignore_merges"] = true;
  EXPECT_EQ(make_bpe_tokenizer(parse_hf_tokenizer(page.dump(), "t"))->encode("qqq"),
            std::vector<int32_t>{500});
  page["model"]["ignore_merges"] = false;
  EXPECT_EQ(make_bpe_tokenizer(parse_hf_tokenizer(page.dump(), "t"))->encode("qqq").size(), 3U);
}

TEST(HfTokenizer, RefusesTheRestByName) {
  const Json good = Json::parse(hf_tokenizer_json(trained()));
  const auto refusal = [&](const std::function<void(Json&)>& spoil) {
    Json page = good;
    spoil(page);
    return KILN_ERROR_OF(parse_hf_tokenizer(page.dump(), "t.json"));
  };
  const std::string only = " | kiln reads byte-level BPE tokenizers only";
  EXPECT_EQ(refusal([](Json& p) { p["model"]["type"] = "Unigram"; }),
            "t.json: model.type 'Unigram' is not supported" + only);
  EXPECT_EQ(refusal([](Json& p) { p["normalizer"] = {{"type", "NFC"}}; }),
            "t.json: normalizer normalizer 'NFC' is not supported" + only);
  EXPECT_EQ(refusal([](Json& p) { p["pre_tokenizer"] = {{"type", "Metaspace"}}; }),
            "t.json: pre_tokenizer pre-tokenizer 'Metaspace' is not supported" + only);
  EXPECT_EQ(refusal([](Json& p) { p["pre_tokenizer"] = nullptr; }),
            "t.json: pre_tokenizer no pre-tokenizer is not supported" + only);
  EXPECT_EQ(refusal([](Json& p) { p["pre_tokenizer"]["add_prefix_space"] = true; }),
            "t.json: pre_tokenizer.add_prefix_space true is not supported" + only);
  EXPECT_EQ(refusal([](Json& p) { p["decoder"] = {{"type", "WordPiece"}}; }),
            "t.json: decoder 'WordPiece' is not supported" + only);
  EXPECT_EQ(refusal([](Json& p) { p["post_processor"] = {{"type", "BertProcessing"}}; }),
            "t.json: post_processor post-processor 'BertProcessing' is not supported" + only);
  EXPECT_EQ(refusal([](Json& p) { p["added_tokens"][0]["lstrip"] = true; }),
            "t.json: added_tokens[0].lstrip true is not supported" + only);
  EXPECT_EQ(refusal([](Json& p) { p["model"]["byte_fallback"] = true; }),
            "t.json: model.byte_fallback true is not supported" + only);
  EXPECT_EQ(refusal([](Json& p) { p["model"]["dropout"] = 0.1; }),
            "t.json: model.dropout dropping merges at random is not supported" + only);
  EXPECT_EQ(refusal([](Json& p) { p["model"]["end_of_word_suffix"] = "</w>"; }),
            "t.json: model.end_of_word_suffix '</w>' is not supported" + only);
  EXPECT_EQ(refusal([](Json& p) { p.erase("model"); }), "t.json: lacks 'model'");
  EXPECT_EQ(refusal([](Json& p) { p["model"]["vocab"]["a"] = -1; }),
            "t.json: model.vocab.a is -1; expected a whole number from 0 to 6095");
  EXPECT_EQ(refusal([](Json& p) { p["model"]["vocab"]["a"] = 3'999'999; }),
            "t.json: model.vocab.a is 3999999; expected a whole number from 0 to 6095");
  EXPECT_NE(refusal([](Json& p) { p["model"]["vocab"]["a"] = 98; }).find("gives id 98 to two tokens"),
            std::string::npos);
  EXPECT_NE(
      refusal([](Json& p) { p["model"]["vocab"]["a b"] = 500; }).find("not spelled in ByteLevel's alphabet"),
      std::string::npos);
  EXPECT_NE(refusal([](Json& p) { p["model"]["vocab"].erase("a"); }).find("'a' is not in the vocabulary"),
            std::string::npos);
  EXPECT_EQ(refusal([](Json& p) {
              p["model"]["merges"] = Json::array();
              p["model"]["vocab"].erase("a");
            }),
            "t.json: byte 97 has no token of its own, so not every text can be encoded");
  EXPECT_NE(refusal([](Json& p) { p["model"]["merges"][0] = "q"; }).find("model.merges[0]: 'q' has no space"),
            std::string::npos);
  EXPECT_EQ(refusal([](Json& p) { p["model"]["merges"][0] = {"a", "b", "c"}; }),
            "t.json: model.merges[0] has 3 parts; expected two");
  EXPECT_NE(
      refusal([](Json& p) { p["model"]["merges"][0] = "q \u0144"; }).find("is not a merge of two tokens"),
      std::string::npos);
  EXPECT_NE(refusal([](Json& p) { p["added_tokens"][0]["id"] = 300; }).find("which is another token's"),
            std::string::npos);
  EXPECT_NE(refusal([](Json& p) { p["added_tokens"][0]["content"] = ""; }).find("is an empty token"),
            std::string::npos);
  EXPECT_NE(refusal([](Json& p) { p["added_tokens"].push_back(p["added_tokens"][0]); }).find("t.json: "),
            std::string::npos);
}

TEST(VocabMerges, RoundTripAndRefusals) {
  const BpeModel model = trained();
  const std::string vocab = vocab_json(model), merges = merges_txt(model);
  expect_same_ids(model, parse_vocab_merges(vocab, merges, "v", "m"));
  EXPECT_TRUE(merges.starts_with("#version: 0.2\n"));
  EXPECT_EQ(KILN_ERROR_OF(parse_vocab_merges(vocab, "a b c\n", "v", "m")),
            "m line 1: 'a b c' is not two tokens with a space between");
  EXPECT_EQ(KILN_ERROR_OF(parse_vocab_merges(vocab, "#version: 0.2\n\nqq a\n", "v", "m")),
            "m line 3: 'qq' is not in the vocabulary");
  Json shared = Json::parse(vocab);  // found by fuzzing: one id for two texts
  shared["<|endoftext|>"] = shared["l"];
  const std::string said = KILN_ERROR_OF(parse_vocab_merges(shared.dump(), merges, "v", "m"));
  EXPECT_NE(said.find("is both the special token '<|endoftext|>' and 'l'"), std::string::npos) << said;
  EXPECT_EQ(KILN_ERROR_OF(parse_vocab_merges("{}", "", "v", "m")), "v: is empty");
  EXPECT_EQ(KILN_ERROR_OF(parse_vocab_merges("[]", "", "v", "m")),
            "v: the document is an array; expected an object");
}

TEST(Tiktoken, RanksAreMerges) {
  // The same tokens by rank; words of the vocabulary are taken whole.
  const BpeModel model = trained();
  const BpeModel back = parse_tiktoken(tiktoken_text(model), {}, "t");
  EXPECT_EQ(back.tokens, model.tokens);
  EXPECT_EQ(back.specials.id_of(kEndOfText), 499);
  EXPECT_TRUE(back.whole_words_first);
  const auto a = make_bpe_tokenizer(model), b = make_bpe_tokenizer(back);
  EXPECT_EQ(b->decode(b->encode(sample())), sample());
  EXPECT_EQ(a->fingerprint(), b->fingerprint());
  // Trained in the order of ids, both read a text alike but for words the merges cannot reach whole.
  const auto x = a->encode(sample()), y = b->encode(sample());
  EXPECT_LE(y.size(), x.size() + x.size() / 20);
}

TEST(Tiktoken, WrittenAsTokenizerJsonItGivesTheSameIds) {
  const BpeModel ranks = parse_tiktoken(tiktoken_text(trained()), {}, "t");
  expect_same_ids(ranks, parse_hf_tokenizer(hf_tokenizer_json(ranks), "t"));
}

TEST(Tiktoken, EncodingsAreToldByTheirSize) {
  if (!have_pcre2()) GTEST_SKIP() << "built without PCRE2";
  const auto file = [](int32_t count) {
    BpeModel m;
    for (int b = 0; b < 256; ++b) m.tokens.emplace_back(1, static_cast<char>(b));
    for (int32_t i = 256; i < count; ++i) m.tokens.push_back(cat("\xff", i));
    return tiktoken_text(m);
  };
  const BpeModel llama3 = parse_tiktoken(file(128'000), {}, "t");
  EXPECT_EQ(llama3.vocab_size(), 128'256);
  EXPECT_EQ(llama3.specials.id_of("<|eot_id|>"), 128'009);
  EXPECT_EQ(llama3.specials.id_of("<|reserved_special_token_250|>"), 128'255);
  EXPECT_EQ(llama3.specials.end_of_text(), 128'001);
  EXPECT_EQ(parse_tiktoken(file(100'256), {}, "t").vocab_size(), 100'277);
  EXPECT_EQ(parse_tiktoken(file(300), {}, "t").splitter->regex(), make_splitter("gpt2")->regex());
  const BpeModel own = parse_tiktoken(file(300), {.pattern = "o200k", .specials = {"<a>", "<b>"}}, "t");
  EXPECT_EQ(own.specials.id_of("<b>"), 301);
  EXPECT_EQ(own.splitter->regex(), make_splitter("o200k")->regex());
}

TEST(Tiktoken, Refusals) {
  const auto refusal = [](std::string_view text) {
    const std::string all = KILN_ERROR_OF(parse_tiktoken(text, {}, "t"));
    return all.substr(0, all.find(" | "));
  };
  EXPECT_EQ(refusal("YQ==\n"), "t line 1: 'YQ==' has no space");
  EXPECT_EQ(refusal("YQ== 0\nY 1\n"), "t line 2: 'Y 1' does not begin with base64");
  EXPECT_EQ(refusal("YQ== x\n"), "t line 1: 'YQ== x' does not end with a rank from 0 to 4103");
  EXPECT_EQ(refusal("YQ== 1000000\n"), "t line 1: 'YQ== 1000000' does not end with a rank from 0 to 4103");
  EXPECT_EQ(refusal("YQ== 0\nYg== 0\n"), "t line 2: 'Yg== 0' has a rank that came before");
  EXPECT_EQ(refusal("YQ== 0\n"), "t: byte 0 has no token of its own, so not every text can be encoded");
  EXPECT_EQ(refusal(""), "t: byte 0 has no token of its own, so not every text can be encoded");
}

TEST(LoadTokenizer, ByNameFileAndFolder) {
  const TempFolder folder;
  const BpeModel model = trained();
  const auto expected = make_bpe_tokenizer(model)->encode(sample());
  EXPECT_EQ(load_tokenizer("byte")->kind(), "byte");
  folder.write("hf/tokenizer.json", hf_tokenizer_json(model));
  folder.write("gpt2/vocab.json", vocab_json(model));
  EXPECT_NE(KILN_ERROR_OF(load_tokenizer(folder / "gpt2")).find("has no merges.txt next to it"),
            std::string::npos);
  folder.write("gpt2/merges.txt", merges_txt(model));
  folder.write("tik/x.tiktoken", tiktoken_text(model));
  for (const char* path : {"hf", "hf/tokenizer.json", "gpt2", "gpt2/vocab.json"})
    EXPECT_EQ(load_tokenizer(folder / path)->encode(sample()), expected) << path;
  EXPECT_EQ(load_tokenizer(folder / "tik")->vocab_size(), 500);
  EXPECT_EQ(load_tokenizer(folder / "tik/x.tiktoken")->vocab_size(), 500);
  EXPECT_NE(KILN_ERROR_OF(load_tokenizer(folder / "none")).find("there is no tokenizer"), std::string::npos);
  folder.write("empty/x", "");
  EXPECT_NE(KILN_ERROR_OF(load_tokenizer(folder / "empty")).find("holds no tokenizer"), std::string::npos);
  EXPECT_NE(KILN_ERROR_OF(load_tokenizer(folder / "empty/x")).find("is empty"), std::string::npos);
}

TEST(LoadTokenizer, TheByteTokenizerIsSavedAsAnyOther) {
  const TempFolder folder;
  const auto bytes = make_byte_tokenizer();
  save_tokenizer(*bytes, folder.path());
  const auto back = load_tokenizer(folder.path());
  EXPECT_EQ(back->encode(sample()), bytes->encode(sample()));
  EXPECT_EQ(back->fingerprint(), bytes->fingerprint());
  EXPECT_EQ(back->vocab_size(), 257);
}

}  // namespace
}  // namespace kiln
