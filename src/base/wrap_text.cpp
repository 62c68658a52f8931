#include "base/wrap_text.h"

#include <algorithm>

namespace kiln {
namespace {

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xc0) != 0x80; }));
}

// Where a line's text begins: behind the first gap of two spaces after a word, else at its first word.
std::size_t hanging_indent(std::string_view line) {
  const std::size_t first = line.find_first_not_of(' ');
  if (first == std::string_view::npos) return 0;
  const std::size_t gap = line.find("  ", first);
  if (first == 0 || gap == std::string_view::npos) return first;
  const std::size_t second = line.find_first_not_of(' ', gap);
  return second == std::string_view::npos ? first : second;
}

std::string wrap_line(std::string_view line, std::size_t width) {
  std::size_t indent = hanging_indent(line);
  if (2 * indent > width) indent = line.find_first_not_of(' ');  // no column is left to speak of
  std::string text(line.substr(0, indent));
  std::size_t column = characters(text);
  bool begins = true;  // nothing but the indent is on this line
  for (std::string_view rest = line.substr(indent); !rest.empty();) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    const std::string_view word = rest.substr(0, end);
    const std::size_t next = std::min(rest.find_first_not_of(' ', end), rest.size());
    const std::size_t spaces = begins ? 0 : 1;
    if (!begins && column + spaces + characters(word) > width) {
      text += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (!begins) {
      text += ' ';
      ++column;
    }
    text += word;
    column += characters(word);
    begins = false;
    rest.remove_prefix(next);
  }
  return text;
}

}  // namespace

std::string wrap_text(std::string_view text, std::size_t width) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    out += characters(line) > width ? wrap_line(line, width) : std::string(line);
    if (end < text.size()) out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace kiln
