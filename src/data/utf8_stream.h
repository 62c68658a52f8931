// Bytes that come a few at a time, a token's say, as whole characters: one that is not complete waits for its
// rest, and what cannot become UTF-8 is shown as U+FFFD.
#pragma once

#include <string>
#include <string_view>

namespace kiln {

class Utf8Stream {
 public:
  // What can be shown after these bytes; valid UTF-8, often empty.
  std::string push(std::string_view bytes);
  // What is left at the end: nothing, or U+FFFD for a character that was never completed.
  std::string finish();

 private:
  std::string take_characters(bool at_end);

  std::string waiting_;
};

}  // namespace kiln
