// The mean loss over held-out text, without gradients.
#pragma once

#include "data/batch_loader.h"
#include "model/llama.h"

namespace kiln {

struct Evaluation {
  double loss = 0;  // mean over all tokens, in nats
  int64_t tokens = 0;
};

// Over the first windows of `tokens` in the files' own order, `batches` batches of B x T or as many whole
// ones as there are: the same text each time it is asked. Text shorter than one batch is an Error.
Evaluation evaluate(RankContext& ctx, const Llama& model, const std::shared_ptr<const TokenSet>& tokens,
                    int64_t batch, int64_t context, int64_t batches);

}  // namespace kiln
