// BPE by its definition, slowly: what the trainer and the encoder are held to. Symbols are byte strings;
// everything is recounted for each merge.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace kiln {

struct NaiveBpe {
  std::vector<std::string> tokens;                          // by id: bytes, then new ones as they are made
  std::vector<std::pair<std::string, std::string>> merges;  // by rank
};

// `words` and how often each occurs in the text.
NaiveBpe naive_train(const std::map<std::string, int64_t>& words, std::size_t vocab_size);

// One word: again and again the pair that is first in `merges`, its leftmost place.
std::vector<std::string> naive_encode(const std::string& word,
                                      const std::vector<std::pair<std::string, std::string>>& merges);

}  // namespace kiln
