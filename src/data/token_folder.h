// The folder `kiln tokenize` makes: token shards, tokenizer.json, and dataset.json, which is written last and
// lists what belongs to the set. A folder without it is incomplete.
#pragma once

#include <string>
#include <vector>

#include "data/shard_writer.h"

namespace kiln {

struct TokenFolder {
  std::string tokenizer;    // "byte" or "bpe"
  std::string fingerprint;  // of the tokenizer in tokenizer.json
  int32_t vocab_size = 0;
  std::vector<ShardFile> train, val;
};

bool is_token_folder(const std::string& folder);

// Error when dataset.json is not as it should be, or a shard it names is missing or has another number of
// tokens.
TokenFolder read_token_folder(const std::string& folder);

TokenFolder parse_dataset_json(std::string_view text, std::string_view source);

void write_dataset_json(const std::string& folder, const TokenFolder& content);

}  // namespace kiln
