// A JSON file that kiln has written, read back.
#pragma once

#include <istream>
#include <iterator>
#include <string>

#include "base/json.h"

namespace kiln {

inline Json json_of(std::istream& file) {
  return Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
}

}  // namespace kiln
