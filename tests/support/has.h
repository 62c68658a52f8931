// Whether a text contains another: what tests of tables, pages and messages ask.
#pragma once

#include <string_view>

namespace kiln {

inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace kiln
