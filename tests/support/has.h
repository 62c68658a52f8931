// Whether a text contains another: for tests of tables, pages and messages. A string and not a view:
// then a JSON value can be asked too.
#pragma once

#include <string>
#include <string_view>

namespace kiln {

inline bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace kiln
