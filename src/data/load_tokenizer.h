// Loads the tokenizer named by the user: "byte", a file, or a folder that holds one.
#pragma once

#include <memory>
#include <string>

#include "data/bpe_tokenizer.h"

namespace kiln {

// "byte"; a tokenizer.json; a vocab.json with merges.txt next to it; a tiktoken file (its first line says
// so); or a folder with one of these. `pattern` names the split pattern for tiktoken files that do not imply
// one; empty otherwise.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& name_or_path,
                                                const std::string& pattern = {});

// The same for a model that is there already: "byte" is as many tokens as it has, 256 or 257. `model_vocab`
// 0: there is no model yet.
std::shared_ptr<const Tokenizer> load_tokenizer_of(int64_t model_vocab, const std::string& name_or_path);

// Whether a folder has files that load_tokenizer would read.
bool holds_tokenizer(const std::string& folder);

// tokenizer.json for any tokenizer; the byte tokenizer becomes a BPE without merges that gives the same ids.
std::string tokenizer_json(const Tokenizer& tokenizer);

// Writes tokenizer.json into the folder, whole or not at all.
void save_tokenizer(const Tokenizer& tokenizer, const std::string& folder);

}  // namespace kiln
