// Text for a terminal: lines that are too long continue below, under where their text begins.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kiln {

// A line of a list, "  --steps N    training steps", continues under its second column; any other, under its
// first word. A word that is too long by itself stays whole. UTF-8 is counted by its characters.
std::string wrap_text(std::string_view text, std::size_t width);

}  // namespace kiln
