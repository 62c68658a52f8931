// Base64 with padding, as tiktoken's files have it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kiln {

std::string to_base64(std::string_view bytes);
std::optional<std::string> from_base64(std::string_view text);  // nothing unless it is exactly that

}  // namespace kiln
