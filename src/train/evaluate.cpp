#include "train/evaluate.h"

#include <algorithm>

#include "autograd/tape.h"

namespace kiln {
namespace {

double read_loss(RankContext& ctx, const Tensor& loss) {
  if (loss.dtype() == DType::f64) {
    double value = 0;
    ctx.download(&value, loss);
    return value;
  }
  float value = 0;
  ctx.download(&value, loss);
  return value;
}

}  // namespace

Evaluation evaluate(RankContext& ctx, const Llama& model, const std::shared_ptr<const TokenSet>& tokens,
                    int64_t batch, int64_t context, int64_t batches) {
  BatchLoader loader(tokens, {.batch = batch, .context = context, .shuffle = false, .prefetch = false});
  const auto whole = static_cast<int64_t>(loader.windows()) / batch;
  if (whole == 0) {
    throw Error(cat("the text to evaluate on has ", loader.windows(), " windows of ", context,
                    " tokens; a batch needs ", batch),
                "use a smaller batch or context, or more text");
  }
  const GradModeGuard off(ctx, GradMode::off);
  const Tensor inputs = ctx.empty({batch, context}, DType::i32, Tag::data);
  const Tensor targets = ctx.empty({batch, context}, DType::i32, Tag::data);
  Evaluation result;
  const int64_t count = std::min(batches, whole);
  for (int64_t i = 0; i < count; ++i) {
    const HostBatch& b = loader.next()[0];
    ctx.upload(inputs, b.tokens.data());
    ctx.upload(targets, b.targets.data());
    result.loss += read_loss(ctx, model.loss(ctx, inputs, targets));
    result.tokens += batch * context;
  }
  result.loss /= static_cast<double>(count);
  return result;
}

}  // namespace kiln
