// The tokenizer that needs no file: ids 0-255 are the bytes, 256 is <|endoftext|>. For a model of 256 tokens,
// which knows no end of a text, it is the bytes alone.
#pragma once

#include <memory>

#include "data/tokenizer.h"

namespace kiln {

std::shared_ptr<const Tokenizer> make_byte_tokenizer(bool end_of_text = true);

}  // namespace kiln
