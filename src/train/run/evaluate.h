// The mean loss over validation text, without gradients.
#pragma once

#include <functional>

#include "data/batch_loader.h"
#include "data/tokenizer.h"
#include "model/model.h"

namespace kiln {

struct Evaluation {
  double loss = 0;     // mean over all tokens, in nats
  int64_t tokens = 0;  // that were predicted
  int64_t bytes = 0;   // of text they stand for; special tokens stand for none. 0: not known

  double perplexity() const;
  double bits_per_byte() const;  // 0 where the bytes are not known
};

inline constexpr int64_t kAllBatches = INT64_MAX;

struct EvaluateExtras {
  const Tokenizer* tokenizer = nullptr;  // to count the text's bytes
  std::function<void(int64_t done, int64_t all)> progress = {};
};

// Over the first windows of `tokens` in the files' own order, `batches` batches of B x T or as many windows
// as there are: the same text each time it is asked. The last batch may have fewer.
Evaluation evaluate(RankContext& ctx, const Model& model, const std::shared_ptr<const TokenSet>& tokens,
                    int64_t batch, int64_t context, int64_t batches, const EvaluateExtras& extras = {});

// One full batch of it on meta, which has no text: for the memory it will take.
void plan_evaluation(RankContext& ctx, const Model& model, int64_t batch, int64_t context);

}  // namespace kiln
