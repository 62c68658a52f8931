#include "data/training_text.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "data/builtin_text.h"
#include "data/text_source.h"
#include "data/utf8.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

std::string rhyme() {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the cat sat on the mat and the dog sat on the log\n";
  return text;
}

std::string source_file(const char* name) {
  std::ifstream file(std::filesystem::path(KILN_TESTS_FOLDER) / ".." / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// All tokens of a set as text again.
std::string decoded(const TrainingText& t, const TokenSet& tokens) {
  std::string text;
  for (const TokenShard& s : tokens.shards()) {
    std::vector<int32_t> ids(static_cast<std::size_t>(s.size()));
    s.read(0, ids, t.vocab_size);
    text += t.tokenizer->decode(ids);
  }
  return text;
}

TEST(BuiltinText, IsKilnsOwnDocumentsAndSources) {
  const std::string_view text = builtin_text();
  EXPECT_EQ(why_not_text(text), "");
  EXPECT_EQ(text.find("=== README.md\n# kiln\n"), 0u);
  EXPECT_GT(text.size(), 500'000u);
  // Whole files, byte for byte: also what CMake's lists and strings could trip over.
  for (const char* name : {"README.md", "src/train/step.cpp", "src/base/json.cpp",
                           "src/data/builtin_text.cpp", "apps/kiln/main.cpp", "docs/tour.md"}) {
    const std::string whole = cat("=== ", name, "\n", source_file(name), "\n=== ");
    EXPECT_NE(text.find(whole), std::string_view::npos) << name;
  }
  EXPECT_LT(text.find("=== apps/kiln/main.cpp"), text.find("=== docs/tour.md"));
  EXPECT_LT(text.find("=== docs/tour.md"), text.find("=== src/base/json.cpp"));
}

TEST(TrainingText, WithoutAPathIsTheBuiltinText) {
  ThreadPool pool(2);
  const TrainingText t = read_training_text("", {.held_out = 0.25, .context = 8}, pool);
  EXPECT_EQ(t.name, "kiln's own sources");
  EXPECT_EQ(t.text_bytes, builtin_text().size());
  ASSERT_TRUE(t.validation);
  const std::string end(kEndOfText);  // it also is in the sources, where it is a token of one id
  EXPECT_EQ(decoded(t, *t.train) + decoded(t, *t.validation), [&] {
    const auto cut = decoded(t, *t.train).size() - end.size();
    return std::string(builtin_text().substr(0, cut)) + end + std::string(builtin_text().substr(cut)) + end;
  }());
}

TEST(TrainingText, TextInMemoryIsSplitAsAFileIs) {
  const TempFolder folder;
  const std::string text = rhyme();
  const TextSource file(folder.write("a", text)), held = TextSource::in_memory("a", text);
  for (double part : {0.0, 0.1, 0.37}) {
    const TextSplit a = split_text(file, part), b = split_text(held, part);
    ASSERT_EQ(a.train.size(), b.train.size());
    ASSERT_EQ(a.validation.size(), b.validation.size());
    for (std::size_t i = 0; i < a.train.size(); ++i)
      EXPECT_EQ(RangeText(a.train[i]).text(), RangeText(b.train[i]).text());
    for (std::size_t i = 0; i < a.validation.size(); ++i)
      EXPECT_EQ(RangeText(a.validation[i]).text(), RangeText(b.validation[i]).text());
  }
  EXPECT_EQ(KILN_ERROR_OF(TextSource::in_memory("this", "")), "this cannot be used as text: it is empty");
}

TEST(TrainingText, TrainsAVocabularyOnWhatIsTrainedOn) {
  const TempFolder folder;
  // Words that occur only in the validation part must leave no trace in the vocabulary.
  std::string text = rhyme();
  for (int i = 0; i < 60; ++i) text += "zyzzyva zyzzyva zyzzyva\n";
  folder.write("a", text);
  ThreadPool pool(2);
  const TrainingText t =
      read_training_text(folder / "a", {.train_vocab = 270, .held_out = 0.2, .context = 8}, pool);
  EXPECT_EQ(t.vocab_size, 270);
  EXPECT_EQ(t.tokenizer->kind(), "bpe");
  EXPECT_LT(t.train->size(), 4000) << "of some 9000 characters";
  ASSERT_TRUE(t.validation);
  const std::string all = decoded(t, *t.train) + decoded(t, *t.validation);
  EXPECT_EQ(all.size(), text.size() + 2 * kEndOfText.size());
  for (int32_t id = 0; id < t.vocab_size; ++id)
    EXPECT_EQ(t.tokenizer->bytes_of(id).find("zy"), std::string_view::npos) << id;
  const TrainingText again =
      read_training_text(folder / "a", {.train_vocab = 270, .held_out = 0.2, .context = 8}, pool);
  EXPECT_EQ(again.tokenizer->fingerprint(), t.tokenizer->fingerprint());
}

// nanoGPT's format: uint16 and nothing else.
std::string shard_of(int32_t first, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes += static_cast<char>((first + i) & 0xff);
    bytes += static_cast<char>((first + i) >> 8);
  }
  return bytes;
}

TEST(TrainingText, ATokenFileIsReadWithoutATokenizer) {
  const TempFolder folder;
  const std::string file = folder.write("x.bin", shard_of(100, 400));
  ThreadPool pool(2);
  const TrainingText t = read_training_text(file, {.held_out = 0.25, .context = 8}, pool);
  EXPECT_FALSE(t.tokenizer);
  EXPECT_EQ(t.vocab_size, 500) << "to the largest id";
  EXPECT_EQ(t.train->size(), 300);
  ASSERT_TRUE(t.validation);
  std::vector<int32_t> last(100);
  t.validation->shards()[0].read(0, last, 500);
  EXPECT_EQ(last.front(), 400);
  EXPECT_EQ(last.back(), 499);
  // Ids that the named tokenizer does not have.
  EXPECT_NE(
      KILN_ERROR_OF(read_training_text(file, {.tokenizer_named = true, .context = 8}, pool)).find("x.bin"),
      std::string::npos);
  EXPECT_NE(KILN_ERROR_OF(read_training_text(file, {.train_vocab = 300, .context = 8}, pool))
                .find("holds tokens already"),
            std::string::npos);
}

TEST(TrainingText, AFolderOfTokenFilesHasItsValidationByName) {
  const TempFolder folder;
  folder.write("a_train.bin", shard_of(0, 100));
  folder.write("b_train.bin", shard_of(50, 100));
  folder.write("a_val.bin", shard_of(100, 60));
  ThreadPool pool(1);
  const TrainingText t = read_training_text(folder.path(), {.context = 8}, pool);
  EXPECT_EQ(t.train->size(), 200);
  ASSERT_TRUE(t.validation);
  EXPECT_EQ(t.validation->size(), 60);
  EXPECT_EQ(t.vocab_size, 160);
  folder.write("notes.txt", rhyme());  // with a text in it, it is a folder of texts
  EXPECT_EQ(read_training_text(folder.path(), {.context = 8}, pool).tokenizer->kind(), "byte");
}

TEST(TrainingText, RefusesOptionsThatCannotBe) {
  ThreadPool pool(1);
  auto said = [&](const TextOptions& o) { return KILN_ERROR_OF(read_training_text("", o, pool)); };
  EXPECT_NE(said({.train_vocab = 100}).find("100"), std::string::npos);
  EXPECT_NE(said({.train_vocab = -5}).find("-5"), std::string::npos);
  EXPECT_NE(said({.tokenizer = "x.json", .train_vocab = 300}).find("only one of them"), std::string::npos);
  EXPECT_NE(said({.held_out = 1}).find("less than 1"), std::string::npos);
}

}  // namespace
}  // namespace kiln
