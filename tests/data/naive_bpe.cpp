#include "data/naive_bpe.h"

#include <algorithm>

namespace kiln {
namespace {

std::vector<std::string> letters(const std::string& word) {
  std::vector<std::string> symbols;
  symbols.reserve(word.size());
  for (const char c : word) symbols.emplace_back(1, c);
  return symbols;
}

}  // namespace

NaiveBpe naive_train(const std::map<std::string, int64_t>& words, std::size_t vocab_size) {
  NaiveBpe bpe;
  for (int b = 0; b < 256; ++b) bpe.tokens.emplace_back(1, static_cast<char>(b));
  std::vector<std::pair<std::vector<std::string>, int64_t>> split;
  split.reserve(words.size());
  for (const auto& [word, count] : words) split.emplace_back(letters(word), count);
  // char_traits<char> compares as unsigned bytes, so std::string's order is the bytes' order.
  while (bpe.tokens.size() < vocab_size) {
    std::map<std::pair<std::string, std::string>, int64_t> counts;
    for (const auto& [symbols, count] : split) {
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) counts[{symbols[i], symbols[i + 1]}] += count;
    }
    if (counts.empty()) break;
    const auto best = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
      return std::pair(a.second, a.first) < std::pair(b.second, b.first);
    });
    const auto [left, right] = best->first;
    const std::string joined = left + right;
    if (std::find(bpe.merges.begin(), bpe.merges.end(), best->first) == bpe.merges.end())
      bpe.merges.push_back(best->first);
    if (std::find(bpe.tokens.begin(), bpe.tokens.end(), joined) == bpe.tokens.end())
      bpe.tokens.push_back(joined);
    for (auto& [symbols, count] : split) {
      std::vector<std::string> merged;
      for (std::size_t i = 0; i < symbols.size();) {
        const bool hit = i + 1 < symbols.size() && symbols[i] == left && symbols[i + 1] == right;
        merged.push_back(hit ? joined : symbols[i]);
        i += hit ? 2 : 1;
      }
      symbols = std::move(merged);
    }
  }
  return bpe;
}

std::vector<std::string> naive_encode(const std::string& word,
                                      const std::vector<std::pair<std::string, std::string>>& merges) {
  std::vector<std::string> symbols = letters(word);
  for (;;) {
    std::size_t best_rank = merges.size(), best_place = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = std::find(merges.begin(), merges.end(), std::pair(symbols[i], symbols[i + 1]));
      const auto rank = static_cast<std::size_t>(found - merges.begin());
      if (rank < best_rank) {
        best_rank = rank;
        best_place = i;
      }
    }
    if (best_rank == merges.size()) return symbols;
    symbols[best_place] += symbols[best_place + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best_place) + 1);
  }
}

}  // namespace kiln
