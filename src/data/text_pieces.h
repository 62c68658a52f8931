// Walks a text in pieces that can be encoded apart: special tokens, and stretches of text between them cut to
// about `piece_bytes` where a cut changes nothing. Where the cuts fall depends on the text alone.
#pragma once

#include <optional>
#include <string_view>

#include "data/special_tokens.h"

namespace kiln {

struct TextPiece {
  std::string_view text;
  const SpecialToken* special = nullptr;  // null: plain text
};

// FindCut: size_t(text, from), as Tokenizer::find_cut and Splitter::find_cut.
template <class FindCut>
class TextPieces {
 public:
  TextPieces(std::string_view text, const SpecialTokens* specials, FindCut find_cut, std::size_t piece_bytes)
      : text_(text), specials_(specials), find_cut_(find_cut), piece_bytes_(piece_bytes) {
    look_ahead();
  }

  std::optional<TextPiece> next() {
    if (at_ == text_.size()) return std::nullopt;
    const std::size_t plain_end = special_ ? special_->begin : text_.size();
    if (at_ == plain_end) {
      const TextPiece piece{text_.substr(at_, special_->token->text.size()), special_->token};
      at_ += piece.text.size();
      look_ahead();
      return piece;
    }
    const std::string_view plain = text_.substr(at_, plain_end - at_);
    const std::size_t size = plain.size() <= piece_bytes_ ? plain.size() : find_cut_(plain, piece_bytes_);
    at_ += size;
    return TextPiece{plain.substr(0, size), nullptr};
  }

 private:
  void look_ahead() {
    if (specials_ != nullptr) special_ = specials_->find(text_, at_);
  }

  std::string_view text_;
  const SpecialTokens* specials_;  // null: none are looked for
  FindCut find_cut_;
  std::size_t piece_bytes_;
  std::size_t at_ = 0;
  std::optional<SpecialTokens::Match> special_;  // the next one
};

}  // namespace kiln
