// What a run learns from, by the path a user gives: text, which is encoded into memory, or token shards.
#pragma once

#include <memory>
#include <string>

#include "data/token_set.h"
#include "data/tokenizer.h"

namespace kiln {

struct TrainingText {
  std::shared_ptr<const Tokenizer> tokenizer;         // null for shards that came without one
  std::shared_ptr<const TokenSet> train, validation;  // validation is null when nothing is held out
  std::size_t text_bytes = 0;                         // 0 for shards
  int32_t vocab_size = 0;
};

// A folder that `kiln tokenize` made brings its tokenizer and its own split. Any other text is encoded with
// `tokenizer` ("byte", a file or a folder); its last `held_out` part is for validation, and left out when it
// does not fill one window of `context` tokens.
TrainingText read_training_text(const std::string& path, const std::string& tokenizer, double held_out,
                                int64_t context, ThreadPool& pool);

// Text for a model that is there already, all of it; of a folder that `kiln tokenize` made, the part held out
// where there is one. The ids must be those of the model's tokenizer, which may be null for such folders:
// then theirs is taken.
struct EvaluationText {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const TokenSet> tokens;
};
EvaluationText read_evaluation_text(const std::string& path,
                                    const std::shared_ptr<const Tokenizer>& tokenizer, ThreadPool& pool);

}  // namespace kiln
