// The tokenizer that needs no file: ids 0-255 are the bytes, 256 is <|endoftext|>.
#pragma once

#include <memory>

#include "data/tokenizer.h"

namespace kiln {

std::shared_ptr<const Tokenizer> make_byte_tokenizer();

}  // namespace kiln
