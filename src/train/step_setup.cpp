// What a step is before its first run: its parts, and where it goes on from.
#include "train/step.h"

namespace kiln {

void TrainStep::restore(const StepScalars& last) {
  attempt_ = restored_ = last.attempt;
  io_.restore(last);
}

ParamLayout layout_for(Precision precision, const StepOptions& step, int world, bool sharded) {
  return {.precision = precision,
          .sharded = sharded,
          .narrow_grads = step.micro_steps == 1 && world == 1 && !step.canonical,
          .pieces = step.canonical ? CanonicalScalars::kPieces : 1};
}

ParamLayout layout_for(Precision precision, const StepOptions& step, int world, const Strategy& strategy) {
  ParamLayout layout = layout_for(precision, step, world, strategy.shards_params());
  layout.sharded_grads = strategy.shards_grads() && !strategy.shards_params();
  return layout;
}

TrainStep::TrainStep(RankContext& ctx, Llama& model, Strategy& strategy, const StepOptions& options)
    : ctx_(ctx),
      model_(model),
      strategy_(strategy),
      options_(checked(options)),
      optimizer_(ctx, strategy.spans(model.params()), options.adamw),
      io_(ctx, options.batch, options.context, options.micro_steps,
          scales_loss() ? options.loss_scale.initial : 1, options.prefetch),
      pool_(ctx.allocator()),
      first_micro_(ctx, pool_, options.graph && strategy.can_capture()),
      next_micro_(ctx, pool_, options.graph && strategy.can_capture()),
      update_(ctx, pool_, options.graph && strategy.can_capture()) {
  if (options.canonical) canonical_.emplace(ctx, model.params(), strategy);
  const DType dtype = stat_dtype(model.params().values().dtype());
  loss_grad_ = ctx.empty({1}, dtype, Tag::activation);
  const double one_share = share();
  const float narrow = static_cast<float>(one_share);
  ctx.upload(loss_grad_, dtype == DType::f64 ? static_cast<const void*>(&one_share) : &narrow);
}

}  // namespace kiln
