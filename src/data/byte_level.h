// The alphabet in which GPT-2's files spell bytes: printable ones as themselves, the other 68 as the
// characters from U+0100 on, so that a token is always a visible word without spaces. A space is written as
// U+0120.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kiln {

std::string to_byte_level(std::string_view bytes);

// Nothing where the text holds a character outside the alphabet.
std::optional<std::string> from_byte_level(std::string_view text);

}  // namespace kiln
