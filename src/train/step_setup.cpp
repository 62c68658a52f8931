// What a step is before its first run: its parts, and where it resumes.
#include "train/step.h"

namespace kiln {

void TrainStep::restore(const StepScalars& last) {
  attempt_ = restored_ = last.attempt;
  io_.restore(last);
}

void TrainStep::refresh() {
  if (attempt_ > restored_) finish();
  strategy_.refresh();
  const SpanUnit unit = span_unit_of(options_.optimizer.name);
  optimizer_->add(ctx_, missing_spans(*optimizer_, strategy_.spans(model_.params(), unit)), io_.scalars());
  forget_graphs();
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

TrainStep::TrainStep(RankContext& ctx, Model& model, Strategy& strategy, const StepOptions& options)
    : ctx_(ctx),
      model_(model),
      strategy_(strategy),
      options_(checked(options)),
      optimizer_(make_optimizer(options.optimizer, ctx,
                                strategy.spans(model.params(), span_unit_of(options.optimizer.name)))),
      io_(ctx, options.batch, options.context, options.micro_steps,
          scales_loss() ? options.loss_scale.initial : 1, options.prefetch),
      pool_(ctx.allocator()),
      first_micro_(ctx, pool_, options.graph && strategy.can_capture()),
      next_micro_(ctx, pool_, options.graph && strategy.can_capture()),
      update_(ctx, pool_, options.graph && strategy.can_capture()) {
  if (options.canonical) canonical_.emplace(ctx, model.params(), strategy);
  int64_t updated = 0, summed = 0;
  for (const ParamSpan& span : optimizer_->spans()) updated += span.grad.numel();
  for (const Tensor& piece : strategy.own_grads(model.params())) summed += piece.numel();
  if (options.check_summed_grads && updated > summed) own_squares_ = make_step_scalars(ctx);
  const DType dtype = stat_dtype(model.params().values().dtype());
  loss_grad_ = ctx.empty({1}, dtype, Tag::activation);
  const double one_grad_scale = grad_scale();
  const float narrow = static_cast<float>(one_grad_scale);
  ctx.upload(loss_grad_, dtype == DType::f64 ? static_cast<const void*>(&one_grad_scale) : &narrow);
}

}  // namespace kiln
