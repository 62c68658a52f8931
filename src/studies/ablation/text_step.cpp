#include "studies/ablation/text_step.h"

#include "autograd/tape.h"
#include "data/builtin_text.h"

namespace kiln {
namespace {

constexpr double kLearningRate = 1e-3;  // of a run: an update that is wrong must show in the loss

LoaderOptions loader_options(const AblationSetup& setup, uint64_t seed) {
  return {.batch = setup.spec.step.batch,
          .context = setup.spec.step.context,
          .micro_steps = setup.spec.step.micro_steps,
          .seed = seed,
          .prefetch = setup.loader_prefetch};
}

}  // namespace

std::shared_ptr<const TokenSet> byte_tokens(int64_t vocab, ThreadPool& pool) {
  std::vector<int32_t> ids;
  ids.reserve(builtin_text().size());
  for (const char c : builtin_text())
    ids.push_back(static_cast<int32_t>(static_cast<unsigned char>(c) % vocab));
  std::vector<TokenShard> shards;
  shards.emplace_back(std::move(ids), "kiln's own sources");
  return std::make_shared<TokenSet>(std::move(shards), static_cast<int32_t>(vocab), pool);
}

TextStep::TextStep(RankContext& ctx, const AblationSetup& setup, std::shared_ptr<const TokenSet> tokens)
    : ctx_(ctx),
      model_(make_model(setup.spec.model)),
      loader_(std::move(tokens), loader_options(setup, ctx.seed())) {
  model_->params().materialize(ctx, layout_for(setup.spec.precision, setup.spec.step, ctx.world()));
  step_ = std::make_unique<TrainStep>(ctx, *model_, one_rank_, setup.spec.step);
}

TextStep::~TextStep() {
  ctx_.synchronize();
  ctx_.tape().reset();
}

void TextStep::run() { step_->run(loader_.next(), kLearningRate); }

StepScalars TextStep::finish() { return step_->finish(); }

}  // namespace kiln
