// A byte-level BPE as data: what every file format is read into and written from, what the trainer makes and
// the encoder runs on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/special_tokens.h"
#include "data/splitter.h"

namespace kiln {

struct BpeMerge {
  int32_t left, right;  // the pair
  int32_t result;       // what it becomes
  int32_t rank;         // lower goes first; equal ranks go from left to right
};

struct BpeModel {
  static constexpr int32_t kMostTokens = 4'000'000;
  static constexpr std::size_t kLongestToken = 1024;  // bytes

  std::vector<std::string> tokens;  // by id, as bytes; empty: no such token, or a special one
  std::vector<BpeMerge> merges;     // by rank
  bool whole_words_first = false;   // a word that is a token is taken whole, whatever the merges say
  SpecialTokens specials;
  std::shared_ptr<const Splitter> splitter;

  int32_t vocab_size() const;

  // Error unless every single byte is a token, the tokens differ, and each merge joins two tokens to a third.
  // `source` opens the message.
  void check(std::string_view source) const;
};

// Bytes to id for all tokens of a model; views into it.
using TokenIds = std::unordered_map<std::string_view, int32_t>;
TokenIds token_ids(const std::vector<std::string>& tokens);

// Merges by rank alone, as tiktoken has them: two neighbours merge when their joined bytes are a token, and
// the lowest id goes first. Lists every such pair.
std::vector<BpeMerge> merges_by_id(const std::vector<std::string>& tokens);

// For formats that list one pair per token: of several pairs that make one token, the one the merges before
// it arrive at. Sorted by rank. A model whose ranks are its list's order comes back as it is.
std::vector<BpeMerge> one_merge_per_token(const BpeModel& model);

}  // namespace kiln
