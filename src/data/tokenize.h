// What `kiln tokenize` does, apart from its options and its printing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/shard_writer.h"
#include "data/text_source.h"
#include "data/tokenizer.h"

namespace kiln {

struct TokenizeRequest {
  std::string text = {};                   // file or folder
  std::string tokenizer = "byte";          // or a file or folder
  std::optional<int32_t> train_bpe = {};   // vocabulary to train
  std::string pattern = {};                // to split words by; empty: gpt2, or the file's
  std::vector<std::string> specials = {};  // for training; empty: <|endoftext|>
  std::string out = {};
  int64_t shard_tokens = 100'000'000;
  double validation = 0.05;  // validation part of the text
  bool overwrite = false;
  int threads = 0;  // 0: all
};

struct TokenizeReport {
  std::string out;
  std::size_t files = 0, text_bytes = 0;
  std::vector<TextSource::Skipped> skipped;
  std::string tokenizer;  // "byte" or "bpe"
  std::string fingerprint;
  int32_t vocab_size = 0, vocab_wanted = 0;
  std::size_t merges = 0;
  double count_seconds = 0, train_seconds = 0;  // of training: counting words; merging
  double encode_seconds = 0, write_seconds = 0;
  int threads = 0;
  std::vector<ShardFile> train, val;
  int64_t train_tokens = 0, val_tokens = 0;

  int64_t tokens() const { return train_tokens + val_tokens; }
  double bytes_per_token() const { return static_cast<double>(text_bytes) / static_cast<double>(tokens()); }
  double encode_mb_per_second() const { return static_cast<double>(text_bytes) / 1e6 / encode_seconds; }
};

// What is being done, how much of it is done (0 to 1), and a figure to go with it.
using TokenizeProgress = std::function<void(const std::string&, double, const std::string&)>;

TokenizeReport tokenize(const TokenizeRequest& request, const TokenizeProgress& progress);

Json tokenize_json(const TokenizeReport& report);
std::string tokenize_text(const TokenizeReport& report);

}  // namespace kiln
