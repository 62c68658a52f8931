#include "data/unicode_classes.h"

#include <algorithm>
#include <array>

namespace kiln {
namespace {

bool among(std::span<const CodePointRange> ranges, uint32_t c) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), c,
                                      [](uint32_t v, const CodePointRange& r) { return v < r.first; });
  return after != ranges.begin() && c <= std::prev(after)->last;
}

constexpr bool is_space(uint32_t c) {
  return (c >= 0x9 && c <= 0xd) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

constexpr std::array<CharClass, 128> kAscii = [] {
  std::array<CharClass, 128> table{};
  for (uint32_t c = 0; c < 128; ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    table[c] = letter                   ? CharClass::letter
               : (c >= '0' && c <= '9') ? CharClass::number
               : is_space(c)            ? CharClass::space
                                        : CharClass::other;
  }
  return table;
}();

}  // namespace

CharClass char_class(char32_t c) {
  if (c < 128) return kAscii[c];
  if (among(letter_ranges(), c)) return CharClass::letter;
  if (is_space(c)) return CharClass::space;
  return among(number_ranges(), c) ? CharClass::number : CharClass::other;
}

}  // namespace kiln
