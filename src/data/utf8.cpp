#include "data/utf8.h"

#include <cstring>

namespace kiln {

Utf8Char utf8_front(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return {first, 1};
  const uint32_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return {0, 0};
  char32_t code = first & (0x7fU >> length);
  for (uint32_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return {0, 0};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (overlong || surrogate || code > 0x10ffff) return {0, 0};
  return {code, length};
}

std::size_t utf8_valid_prefix(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080u;
  std::size_t i = 0;
  while (i < text.size()) {
    uint64_t eight = 0;
    while (i + sizeof eight <= text.size()) {  // plain ASCII, eight at a time
      std::memcpy(&eight, text.data() + i, sizeof eight);
      if ((eight & kHighBits) != 0) break;
      i += sizeof eight;
    }
    if (i == text.size()) break;
    const Utf8Char c = utf8_front(text.substr(i));
    if (c.length == 0) return i;
    i += c.length;
  }
  return i;
}

void append_utf8(std::string& text, char32_t code) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

}  // namespace kiln
