#include "base/one_line.h"

#include <cstddef>

namespace kiln {
namespace {

constexpr std::size_t kLongest = 2000;  // bytes of the original kept

constexpr std::string_view kOneLineEnd = "; ";

void append_safely(std::string& line, std::string_view text, std::string_view line_end = kOneLineEnd) {
  constexpr std::string_view kHex = "0123456789abcdef";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool shown = (byte >= 0x20 && byte != 0x7f) || (c == '\t' && line_end != kOneLineEnd);
    if (c == '\n') {
      line += line_end;
    } else if (!shown) {
      line += "\\x";
      line += kHex[byte >> 4];
      line += kHex[byte & 0xf];
    } else {
      line += c;
    }
  }
}

}  // namespace

std::string one_line(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  std::string line;
  if (text.size() <= kLongest) {
    append_safely(line, text);
  } else {
    append_safely(line, text.substr(0, kLongest / 2));
    line += " ... ";
    append_safely(line, text.substr(text.size() - kLongest / 2));
  }
  return line;
}

std::string indented(std::string_view text) {
  std::string lines = "  | ";
  append_safely(lines, text, "\n  | ");
  return lines;
}

std::string last_word(const std::string& errors) {
  std::string found;
  for (std::size_t from = 0; from < errors.size();) {
    const std::size_t end = std::min(errors.find('\n', from), errors.size());
    const std::string line = errors.substr(from, end - from);
    if (line.starts_with("kiln: ")) found = line.substr(6);
    from = end + 1;
  }
  return found;
}

}  // namespace kiln
