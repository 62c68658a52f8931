// The text kiln brings along to train on: its own documents and sources, put into the program when it is
// built (cmake/KilnBuiltinText.cmake). Each file follows a line with its path.
#pragma once

#include <string_view>

namespace kiln {

std::string_view builtin_text();

}  // namespace kiln
