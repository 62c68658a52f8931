#include "data/tokenize.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "data/load_tokenizer.h"
#include "data/random_text.h"
#include "data/token_folder.h"
#include "data/token_set.h"
#include "support/temp_folder.h"

namespace kiln::cli {
namespace {

void no_progress(const std::string&, double, const std::string&) {}

std::string decoded(const std::string& folder, const std::string& part) {
  const auto tokenizer = load_tokenizer(folder);
  std::string text;
  for (const std::string& file : token_files(folder, part)) {
    const TokenShard shard(file);
    std::vector<int32_t> ids(static_cast<std::size_t>(shard.size()));
    shard.read(0, ids, tokenizer->vocab_size());
    text += tokenizer->decode(ids);
  }
  return text;
}

TEST(Tokenize, WhatIsWrittenDecodesToTheText) {
  const TempFolder folder;
  RandomText random(1);
  const std::string a = random.prose(5000), b = random.prose(500);
  folder.write("text/a", a);
  folder.write("text/b", b);
  TokenizeRequest request{
      .text = folder / "text", .train_bpe = 400, .out = folder / "out", .shard_tokens = 1000};
  const TokenizeReport report = tokenize(request, no_progress);
  EXPECT_EQ(report.vocab_size, 400);
  EXPECT_GT(report.train.size(), 2U);
  EXPECT_EQ(report.text_bytes, a.size() + b.size());
  const std::string all = decoded(request.out, "train") + decoded(request.out, "val");
  // The last file holds more than the twentieth that is held out, so it is cut: three documents.
  const std::size_t cut = decoded(request.out, "train").size() - 2 * kEndOfText.size() - a.size();
  EXPECT_EQ(all, a + std::string(kEndOfText) + b.substr(0, cut) + std::string(kEndOfText) + b.substr(cut) +
                     std::string(kEndOfText));
  EXPECT_EQ(read_token_folder(request.out).fingerprint, load_tokenizer(request.out)->fingerprint());
}

TEST(Tokenize, ThreadsChangeNoByte) {
  const TempFolder folder;
  RandomText random(2);
  folder.write("text", random.prose(100'000));
  for (const int threads : {1, 3}) {
    (void)tokenize({.text = folder / "text",
                    .train_bpe = 500,
                    .out = folder / std::to_string(threads),
                    .threads = threads},
                   no_progress);
  }
  for (const char* name : {"train_000000.bin", "val_000000.bin", "tokenizer.json", "dataset.json"})
    EXPECT_EQ(folder.read(std::string("1/") + name), folder.read(std::string("3/") + name)) << name;
}

TEST(Tokenize, MistakesLeaveTheFolderAlone) {
  const TempFolder folder;
  const std::string text = folder.write("text", "some text\n");
  TokenizeRequest request{.text = text, .out = folder / "out"};
  (void)tokenize(request, no_progress);
  const std::string before = folder.read("out/dataset.json");
  EXPECT_NE(KILN_ERROR_OF(tokenize(request, no_progress)).find("already holds tokens"), std::string::npos);
  request.overwrite = true;
  request.tokenizer = folder / "none";
  EXPECT_NE(KILN_ERROR_OF(tokenize(request, no_progress)).find("there is no tokenizer"), std::string::npos);
  request.train_bpe = 300;
  request.pattern = "gtp2";
  EXPECT_NE(KILN_ERROR_OF(tokenize(request, no_progress)).find("there is no pattern"), std::string::npos);
  EXPECT_EQ(folder.read("out/dataset.json"), before);
  request.train_bpe.reset();
  request.pattern.clear();
  request.tokenizer = "byte";
  EXPECT_EQ(tokenize(request, no_progress).tokenizer, "byte");
  EXPECT_EQ(folder.read("out/dataset.json"), before);
}

}  // namespace
}  // namespace kiln::cli
