// Text inside a picture.
#pragma once

#include <string>
#include <string_view>

namespace kiln {

// What SVG would take for a tag stands as an entity.
inline std::string svg_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

}  // namespace kiln
