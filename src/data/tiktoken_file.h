// tiktoken's rank files: lines "base64(token) SPACE rank", no special tokens, no pattern. Both follow from
// which encoding it is, recognised by the number of tokens: gpt2 50,256, cl100k 100,256, o200k 199,998,
// llama3 128,000. Any other file is split by GPT-2's pattern, and <|endoftext|> follows its last rank.
#pragma once

#include <string>
#include <string_view>

#include "data/bpe_model.h"

namespace kiln {

struct TiktokenOptions {
  std::string pattern;                // a name; empty: by the number of tokens
  std::vector<std::string> specials;  // ids from the last rank on; empty: by the number of tokens
};

BpeModel parse_tiktoken(std::string_view text, const TiktokenOptions& options, std::string_view source);

std::string tiktoken_text(const BpeModel& model);

}  // namespace kiln
