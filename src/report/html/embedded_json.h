// JSON inside a page's <script type="application/json">: "</script>" in a string would end it.
#pragma once

#include <string>

#include "base/json.h"

namespace kiln {

inline std::string embedded_json(const Json& j) {
  std::string out;
  for (const char c : j.dump()) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

}  // namespace kiln
