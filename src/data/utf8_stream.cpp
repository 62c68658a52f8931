#include "data/utf8_stream.h"

#include "data/utf8.h"

namespace kiln {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Are these bytes, which are no character, the beginning of one? If so it can be completed by the lowest or
// by the highest bytes that continue a character.
bool may_go_on(std::string_view bytes) {
  for (const char fill : {'\x80', '\xbf'}) {
    std::string whole(bytes);
    while (whole.size() < 4) {
      whole += fill;
      if (utf8_front(whole).length == whole.size()) return true;
    }
  }
  return false;
}

// How much is shown as one U+FFFD: as much as could have begun a character, at least a byte.
std::size_t broken_length(std::string_view bytes) {
  std::size_t n = 1;
  while (n < bytes.size() && may_go_on(bytes.substr(0, n + 1))) ++n;
  return n;
}

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  waiting_ += bytes;
  return take_characters(false);
}

std::string Utf8Stream::finish() { return take_characters(true); }

std::string Utf8Stream::take_characters(bool at_end) {
  std::string shown;
  std::string_view rest = waiting_;
  while (!rest.empty()) {
    const std::size_t valid = utf8_valid_prefix(rest);
    shown += rest.substr(0, valid);
    rest.remove_prefix(valid);
    if (rest.empty() || (!at_end && may_go_on(rest))) break;
    shown += kReplacement;
    rest.remove_prefix(broken_length(rest));
  }
  waiting_ = std::string(rest);
  return shown;
}

}  // namespace kiln
