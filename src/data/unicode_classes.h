// What tokenizer patterns ask of a character: letter (\p{L}), number (\p{N}), white space (\s, the Unicode
// property White_Space), or none of these. Unicode 14.0.
#pragma once

#include <cstdint>
#include <span>

namespace kiln {

enum class CharClass : uint8_t { other, letter, number, space };

CharClass char_class(char32_t c);

// The tables behind it, sorted; unicode_tables.cpp is generated.
struct CodePointRange {
  uint32_t first, last;
};
std::span<const CodePointRange> letter_ranges();
std::span<const CodePointRange> number_ranges();

}  // namespace kiln
