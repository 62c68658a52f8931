// The built-in training text: kiln's own documents and sources, embedded at build
// time (cmake/KilnBuiltinText.cmake). Each file follows a line with its path.
#pragma once

#include <string_view>

namespace kiln {

std::string_view builtin_text();

}  // namespace kiln
