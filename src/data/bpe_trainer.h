// Makes a byte-level BPE from word counts.
//
// The rule: while the vocabulary is too small, take the pair of neighbouring symbols that occurs most often
// within words (each place counts, overlapping ones too: "aaa" has the pair a,a twice); of equally frequent
// pairs the lexicographically greatest, comparing the bytes of the left symbols first, then of the right; and
// replace it everywhere, in each word from left to right. Its bytes are a new token, unless they are one
// already: then that token is what the pair becomes, and a pair merged before is merged again without being
// listed twice. Pairs longer than BpeModel::kLongestToken are left alone.
//
// Ids: 0-255 the bytes, then the new tokens in the order they were made, then the special tokens.
#pragma once

#include <functional>
#include <span>

#include "data/bpe_model.h"
#include "data/word_counts.h"

namespace kiln {

struct BpeTrainOptions {
  int32_t vocab_size = 10'000;  // bytes, merges and special tokens
  std::vector<std::string> specials = {std::string(kEndOfText)};
  std::function<void(int32_t tokens)> progress;  // now and then
};

// Error(usage) for a vocabulary too small or too large, before any work is done.
void check_train_options(const BpeTrainOptions& options);

// The vocabulary comes out smaller than requested where no pairs are left to merge.
BpeModel train_bpe(const WordCounts& counts, std::shared_ptr<const Splitter> splitter,
                   const BpeTrainOptions& options);

}  // namespace kiln
