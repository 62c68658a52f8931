#include "train/run/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <unordered_set>

#include "autograd/tape.h"

namespace kiln {
namespace {

// Where a batch's tokens are on the device.
struct Places {
  Places(RankContext& ctx, int64_t batch, int64_t context)
      : inputs(ctx.empty({batch, context}, DType::i32, Tag::data)),
        targets(ctx.empty({batch, context}, DType::i32, Tag::data)) {}

  Tensor loss(RankContext& ctx, const Model& model, int64_t rows) const {
    return model.loss(ctx, inputs.narrow(0, 0, rows), targets.narrow(0, 0, rows));
  }

  Tensor inputs, targets;  // [B, T]
};

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

// Bytes of text behind ids; a special token closes a text and is none of it.
int64_t bytes_behind(std::span<const int32_t> ids, const Tokenizer& tokenizer) {
  std::unordered_set<int32_t> special;
  for (const SpecialToken& t : tokenizer.specials().all()) special.insert(t.id);
  std::size_t bytes = 0;
  for (const int32_t id : ids) {
    if (!special.contains(id)) bytes += tokenizer.bytes_of(id).size();
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace

double Evaluation::perplexity() const { return std::exp(loss); }

double Evaluation::bits_per_byte() const {
  return bytes > 0 ? loss * static_cast<double>(tokens) / std::numbers::ln2 / static_cast<double>(bytes) : 0;
}

Evaluation evaluate(RankContext& ctx, const Model& model, const std::shared_ptr<const TokenSet>& tokens,
                    int64_t batch, int64_t context, int64_t batches, const EvaluateExtras& extras) {
  BatchLoader loader(tokens, {.batch = batch, .context = context, .shuffle = false, .prefetch = false});
  const auto windows = static_cast<int64_t>(loader.windows());
  const int64_t wanted = batches == kAllBatches || batches > windows / batch ? windows : batches * batch;
  const GradModeGuard off(ctx, GradMode::off);
  const Places places(ctx, batch, context);
  Evaluation result;
  for (int64_t done = 0; done < wanted;) {
    const HostBatch& b = loader.next()[0];
    ctx.upload(places.inputs, b.tokens.data());
    ctx.upload(places.targets, b.targets.data());
    const int64_t rows = std::min(batch, wanted - done);  // past the end the loader starts over
    const double mean = read_loss(ctx, places.loss(ctx, model, rows));
    result.loss += mean * static_cast<double>(rows);
    if (extras.tokenizer)
      result.bytes +=
          bytes_behind(b.targets.first(static_cast<std::size_t>(rows * context)), *extras.tokenizer);
    done += rows;
    if (extras.progress) extras.progress(done, wanted);
  }
  result.loss /= static_cast<double>(wanted);
  result.tokens = wanted * context;
  return result;
}

void plan_evaluation(RankContext& ctx, const Model& model, int64_t batch, int64_t context) {
  const GradModeGuard off(ctx, GradMode::off);
  const Places places(ctx, batch, context);
  (void)places.loss(ctx, model, batch);
}

}  // namespace kiln
