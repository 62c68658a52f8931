// Tokens that stand for themselves: "<|endoftext|>" and its like. They are found before anything else is
// done to a text, so no merge can produce one and none can be split.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

inline constexpr std::string_view kEndOfText = "<|endoftext|>";

struct SpecialToken {
  std::string text;
  int32_t id;
};

class SpecialTokens {
 public:
  SpecialTokens() = default;
  // Error for an empty text, and for a text or an id that comes twice.
  explicit SpecialTokens(std::vector<SpecialToken> tokens);
  // With ids first, first + 1, ...
  static SpecialTokens numbered(const std::vector<std::string>& texts, int32_t first);

  const std::vector<SpecialToken>& all() const { return tokens_; }  // by id
  bool empty() const { return tokens_.empty(); }
  std::optional<int32_t> id_of(std::string_view text) const;
  // What closes a document: <|endoftext|>, or the name other families have for it.
  std::optional<int32_t> end_of_text() const;

  struct Match {
    std::size_t begin;
    const SpecialToken* token;
  };
  // The first one at or after `from`; of those that begin at one place, the longest.
  std::optional<Match> find(std::string_view text, std::size_t from) const;

 private:
  std::vector<SpecialToken> tokens_;
  std::array<std::vector<int32_t>, 256> by_first_byte_;  // places in tokens_, longest first
  int only_first_byte_ = -1;                             // where all begin alike, as most do
};

}  // namespace kiln
