#include "data/byte_tokenizer.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace kiln {
namespace {

constexpr std::array<char, 256> kBytes = [] {
  std::array<char, 256> bytes{};
  for (int i = 0; i < 256; ++i) bytes[static_cast<std::size_t>(i)] = static_cast<char>(i);
  return bytes;
}();

class ByteTokenizer final : public Tokenizer {
 public:
  explicit ByteTokenizer(bool end_of_text) : Tokenizer(specials(end_of_text)), end_of_text_(end_of_text) {}

  std::string_view kind() const override { return "byte"; }
  int32_t vocab_size() const override { return end_of_text_ ? 257 : 256; }
  std::string fingerprint() const override {
    std::vector<std::string_view> all;
    all.reserve(static_cast<std::size_t>(vocab_size()));
    for (int32_t id = 0; id < vocab_size(); ++id) all.push_back(bytes_of(id));
    return vocabulary_fingerprint(all);
  }

  std::string_view bytes_of(int32_t id) const override {
    if (id == 256 && end_of_text_) return kEndOfText;
    if (id < 0 || id >= vocab_size())
      throw Error(cat("token ", id, " is not in the byte tokenizer's vocabulary of ", vocab_size()));
    return {&kBytes[static_cast<std::size_t>(id)], 1};
  }

  std::unique_ptr<Scratch> make_scratch() const override { return std::make_unique<Scratch>(); }

  void encode_plain(std::string_view text, Scratch&, std::vector<int32_t>& ids) const override {
    const std::size_t before = ids.size();
    ids.resize(before + text.size());
    std::transform(text.begin(), text.end(), ids.begin() + static_cast<std::ptrdiff_t>(before),
                   [](char c) { return static_cast<int32_t>(static_cast<unsigned char>(c)); });
  }

  std::size_t find_cut(std::string_view text, std::size_t from) const override {
    return std::min(from, text.size());
  }

 private:
  static SpecialTokens specials(bool end_of_text) {
    return end_of_text ? SpecialTokens({{std::string(kEndOfText), 256}})
                       : SpecialTokens(std::vector<SpecialToken>{});
  }

  bool end_of_text_;
};

}  // namespace

std::shared_ptr<const Tokenizer> make_byte_tokenizer(bool end_of_text) {
  return std::make_shared<ByteTokenizer>(end_of_text);
}

}  // namespace kiln
