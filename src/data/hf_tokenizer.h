// Hugging Face's tokenizer.json, as far as it is a byte-level BPE: model BPE; pre-tokenizer ByteLevel, or a
// Split by a regular expression and then ByteLevel; decoder ByteLevel; added tokens. Merges as "a b" or ["a",
// "b"]. What would change the ids and is not one of these is refused by its name. Post-processors add tokens
// around whole sequences, which training must not have: those of Llama and GPT-2 (TemplateProcessing,
// ByteLevel) are ignored.
#pragma once

#include <string>
#include <string_view>

#include "data/bpe_model.h"

namespace kiln {

// `source` opens the messages: the path.
BpeModel parse_hf_tokenizer(std::string_view json_text, std::string_view source);

// The text of a tokenizer.json that `tokenizers` and `transformers` load and that gives the same ids.
std::string hf_tokenizer_json(const BpeModel& model);

}  // namespace kiln
