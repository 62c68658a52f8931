#include "data/tokenizer.h"

#include <limits>

#include "data/text_pieces.h"

namespace kiln {

std::vector<int32_t> Tokenizer::encode(std::string_view text, SpecialText special) const {
  std::vector<int32_t> ids;
  const auto scratch = make_scratch();
  TextPieces pieces(
      text, special == SpecialText::recognise ? &specials_ : nullptr,
      [this](std::string_view t, std::size_t from) { return find_cut(t, from); },
      std::numeric_limits<std::size_t>::max());
  while (const auto piece = pieces.next()) {
    if (piece->special != nullptr) {
      ids.push_back(piece->special->id);
    } else {
      encode_plain(piece->text, *scratch, ids);
    }
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) text += bytes_of(id);
  return text;
}

std::string vocabulary_fingerprint(std::span<const std::string_view> bytes_of_id) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  const auto put = [&](unsigned char byte) { hash = (hash ^ byte) * 0x100000001b3u; };
  const auto put_size = [&](uint64_t n) {
    for (int i = 0; i < 8; ++i) put(static_cast<unsigned char>(n >> (8 * i)));
  };
  put_size(bytes_of_id.size());
  for (const std::string_view bytes : bytes_of_id) {
    put_size(bytes.size());
    for (const char c : bytes) put(static_cast<unsigned char>(c));
  }
  std::string text(16, '0');
  for (std::size_t i = 0; i < 16; ++i) text[15 - i] = "0123456789abcdef"[hash >> (4 * i) & 0xf];
  return text;
}

}  // namespace kiln
