// Byte-level BPE: split into words, then merge within each. Words repeat, so each thread remembers the ids of
// those it has seen, and most words cost one look-up.
#pragma once

#include <memory>

#include "data/bpe_model.h"
#include "data/tokenizer.h"

namespace kiln {

class BpeTokenizer : public Tokenizer {
 public:
  const BpeModel& model() const { return model_; }

 protected:
  explicit BpeTokenizer(BpeModel model) : Tokenizer(model.specials), model_(std::move(model)) {}

 private:
  BpeModel model_;
};

// The model must have passed check().
std::shared_ptr<const BpeTokenizer> make_bpe_tokenizer(BpeModel model);

}  // namespace kiln
