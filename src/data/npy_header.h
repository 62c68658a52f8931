// NumPy's .npy files, as far as they hold one axis of token ids.
#pragma once

#include "data/token_format.h"

namespace kiln {

bool is_npy(std::span<const std::byte> file);
TokenLayout npy_tokens(std::span<const std::byte> file, std::string_view path);

}  // namespace kiln
