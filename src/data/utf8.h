// UTF-8, strictly: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kiln {

struct Utf8Char {
  char32_t code;
  uint32_t length;  // in bytes; 0: the bytes there are not UTF-8
};

// The character at the front of a non-empty text.
Utf8Char utf8_front(std::string_view text);

// How many bytes at the front are valid UTF-8: all of them, or up to the first fault.
std::size_t utf8_valid_prefix(std::string_view text);

void append_utf8(std::string& text, char32_t code);

}  // namespace kiln
