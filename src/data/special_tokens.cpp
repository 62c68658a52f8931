#include "data/special_tokens.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "base/error.h"

namespace kiln {

SpecialTokens::SpecialTokens(std::vector<SpecialToken> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(),
            [](const SpecialToken& a, const SpecialToken& b) { return a.id < b.id; });
  std::unordered_set<std::string_view> seen;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const SpecialToken& t = tokens_[i];
    if (t.text.empty()) throw Error(cat("special token ", t.id, " is empty"));
    if (i > 0 && tokens_[i - 1].id == t.id)
      throw Error(cat("special tokens '", tokens_[i - 1].text, "' and '", t.text, "' have one id, ", t.id));
    if (!seen.insert(t.text).second) throw Error(cat("special token '", t.text, "' is given twice"));
    const auto first = static_cast<unsigned char>(t.text.front());
    by_first_byte_[first].push_back(static_cast<int32_t>(i));
  }
  for (auto& list : by_first_byte_) {
    if (list.size() == tokens_.size() && !list.empty())
      only_first_byte_ = static_cast<int>(&list - by_first_byte_.data());
    std::stable_sort(list.begin(), list.end(), [&](int32_t a, int32_t b) {
      return tokens_[static_cast<std::size_t>(a)].text.size() >
             tokens_[static_cast<std::size_t>(b)].text.size();
    });
  }
}

SpecialTokens SpecialTokens::numbered(const std::vector<std::string>& texts, int32_t first) {
  std::vector<SpecialToken> tokens;
  tokens.reserve(texts.size());
  for (const std::string& text : texts) tokens.push_back({text, first + static_cast<int32_t>(tokens.size())});
  return SpecialTokens(std::move(tokens));
}

std::optional<int32_t> SpecialTokens::id_of(std::string_view text) const {
  for (const SpecialToken& t : tokens_) {
    if (t.text == text) return t.id;
  }
  return std::nullopt;
}

std::optional<int32_t> SpecialTokens::end_of_text() const {
  for (std::string_view name : {kEndOfText, std::string_view("<|end_of_text|>"), std::string_view("</s>")}) {
    if (const auto id = id_of(name)) return id;
  }
  return std::nullopt;
}

std::optional<SpecialTokens::Match> SpecialTokens::find(std::string_view text, std::size_t from) const {
  if (tokens_.empty()) return std::nullopt;
  for (std::size_t i = from; i < text.size(); ++i) {
    if (only_first_byte_ >= 0) {
      const void* next = std::memchr(text.data() + i, only_first_byte_, text.size() - i);
      if (next == nullptr) return std::nullopt;
      i = static_cast<std::size_t>(static_cast<const char*>(next) - text.data());
    }
    for (const int32_t k : by_first_byte_[static_cast<unsigned char>(text[i])]) {
      const SpecialToken& t = tokens_[static_cast<std::size_t>(k)];
      if (text.substr(i).starts_with(t.text)) return Match{i, &t};
    }
  }
  return std::nullopt;
}

}  // namespace kiln
