// GPT-2's pair of files: vocab.json, an object from token to id, and merges.txt, one merge "a b" a line, both
// in the byte-level alphabet. The words are split by GPT-2's pattern. <|endoftext|> in the vocabulary is a
// special token.
#pragma once

#include <string>
#include <string_view>

#include "base/json_reader.h"
#include "data/bpe_model.h"

namespace kiln {

BpeModel parse_vocab_merges(std::string_view vocab_json, std::string_view merges_text,
                            std::string_view vocab_source, std::string_view merges_source);

std::string vocab_json(const BpeModel& model);  // special tokens included
std::string merges_txt(const BpeModel& model);

// Shared with tokenizer.json. Fills tokens by id from an object {token: id}. A token that `specials` has
// under the same id is left out: it is not made of merges.
void read_vocab(const JsonValue& vocab, const SpecialTokens& specials, BpeModel& model);

// One merge of the file: two tokens that are in the vocabulary, and so is what they make. `where` opens the
// message.
class MergeReader {
 public:
  explicit MergeReader(BpeModel& model) : model_(model), ids_(token_ids(model.tokens)) {}
  void add(std::string_view left, std::string_view right, std::string_view where);

 private:
  int32_t id_of(const std::string& bytes, std::string_view shown, std::string_view where) const;

  BpeModel& model_;
  TokenIds ids_;
};

}  // namespace kiln
