// A run's training data, by the path a user gives: text, which is encoded into memory, or token shards; and
// kiln's own sources where no path is given.
#pragma once

#include <memory>
#include <string>

#include "data/token_set.h"
#include "data/tokenizer.h"

namespace kiln {

struct TrainingText {
  std::shared_ptr<const Tokenizer> tokenizer;         // null for shards that came without one
  std::shared_ptr<const TokenSet> train, validation;  // validation is null when there is no such part
  std::size_t text_bytes = 0;                         // 0 for shards
  std::string name;                                   // the path, or what the built-in text is called
  int32_t vocab_size = 0;
};

struct TextOptions {
  std::string tokenizer = "byte";  // "byte", a file or a folder
  bool tokenizer_named = false;    // by the user or by a model: else token files may have come with another
  int64_t model_vocab = 0;         // of a model that is there already; 0: none is
  int32_t train_vocab = 0;         // above 0: instead of it, a BPE of so many tokens trained on the text
  double held_out = 0.1;           // the last part of the text, for validation
  int64_t context = 1;  // the validation part is dropped where it does not fill one window of so many
};

// Error(usage) for options that cannot be, before anything is read.
void check_text_options(const TextOptions& options);

// An empty path is kiln's own text (builtin_text.h). A folder that `kiln tokenize` made brings its tokenizer
// and its own split; token files of other programs are read as they are (token_files_text.h). Any other text
// is encoded; its last part is for validation.
TrainingText read_training_text(const std::string& path, const TextOptions& options, ThreadPool& pool);

// Text for an existing model, all of it; of a folder that `kiln tokenize` made, the validation part
// where there is one. The ids must be those of the model's tokenizer, which may be null for such folders:
// then theirs is taken.
struct EvaluationText {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const TokenSet> tokens;
};
EvaluationText read_evaluation_text(const std::string& path,
                                    const std::shared_ptr<const Tokenizer>& tokenizer, ThreadPool& pool);

}  // namespace kiln
