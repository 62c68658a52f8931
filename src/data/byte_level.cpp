#include "data/byte_level.h"

#include <array>
#include <cstdint>

#include "data/utf8.h"

namespace kiln {
namespace {

struct Alphabet {
  std::array<char16_t, 256> letter{};  // of each byte
  std::array<int16_t, 0x144> byte{};   // of each letter; -1: none
};

constexpr Alphabet kAlphabet = [] {
  Alphabet a;
  for (int16_t& b : a.byte) b = -1;
  char16_t next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool itself = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    const char16_t letter = itself ? static_cast<char16_t>(b) : next++;
    a.letter[static_cast<std::size_t>(b)] = letter;
    a.byte[letter] = static_cast<int16_t>(b);
  }
  return a;
}();

}  // namespace

std::string to_byte_level(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) append_utf8(text, kAlphabet.letter[static_cast<unsigned char>(c)]);
  return text;
}

std::optional<std::string> from_byte_level(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    const Utf8Char c = utf8_front(text);
    if (c.length == 0 || c.code >= kAlphabet.byte.size() || kAlphabet.byte[c.code] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.byte[c.code]);
    text.remove_prefix(c.length);
  }
  return bytes;
}

}  // namespace kiln
