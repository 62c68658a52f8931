// JSON as plain ASCII, for files that other programs read byte by byte.
#pragma once

#include <string>

#include "base/json.h"

namespace kiln {

std::string dump_ascii(const Json& json, int indent = -1);

}  // namespace kiln
