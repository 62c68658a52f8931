#include "studies/step/synthetic_step.h"

#include <array>
#include <cmath>

#include "autograd/tape.h"
#include "base/rng.h"

namespace kiln {
namespace {

constexpr int kBatches = 4;
constexpr double kLearningRate = 1e-4;  // small: weights must stay finite over any number of steps

}  // namespace

std::string_view name_of(StepMode m) {
  constexpr std::array<std::string_view, 3> kNames = {"forward", "forward-backward", "full"};
  return kNames[static_cast<std::size_t>(m)];
}

SyntheticStep::SyntheticStep(RankContext& ctx, const StepSpec& spec, Strategy* sharing,
                             const Partition& partition)
    : ctx_(ctx),
      spec_(spec),
      model_(make_model(spec.model, partition)),
      strategy_(sharing != nullptr ? *sharing : one_rank_) {
  const int tensor = partition.shard_count();
  ParamLayout layout = layout_for(spec.precision, spec.step, ctx.world() / tensor, strategy_);
  layout.tensor_ranks = tensor;
  layout.inference = spec.mode == StepMode::forward;
  model_->params().materialize(ctx, layout);
  if (layout.inference) model_->params().draw_values(ctx);  // zeros draw less power, and would run faster
  if (!ctx.device().is_meta()) draw_tokens();
  if (spec.mode == StepMode::full) {
    strategy_.attach(model_->params());
    whole_.emplace(ctx, *model_, strategy_, spec.step);
    return;
  }
  make_inputs();
  const DType dtype = loss_.dtype();
  loss_grad_ = ctx.empty({1}, dtype);
  const double wide = 1.0 / spec.step.micro_steps;
  const auto narrow = static_cast<float>(wide);
  ctx.upload(loss_grad_, dtype == DType::f64 ? static_cast<const void*>(&wide) : &narrow);
  first_.emplace(ctx, *pool_, spec.step.graph);
  next_.emplace(ctx, *pool_, spec.step.graph);
}

void SyntheticStep::draw_tokens() {
  const int64_t size = spec_.step.batch * spec_.step.context;
  const PhiloxKey key = philox_key(ctx_.seed(), "tokens");
  auto index =
      static_cast<uint64_t>(model_->params().data_rank()) * kBatches * static_cast<uint64_t>(size + 1);
  for (int b = 0; b < kBatches; ++b) {
    tokens_.emplace_back(static_cast<std::size_t>(size + 1));
    for (int32_t& id : tokens_.back())
      id = static_cast<int32_t>(philox(key, index++, 0).x % static_cast<uint64_t>(spec_.model.vocab));
  }
}

HostBatch SyntheticStep::next_batch() {
  if (tokens_.empty()) return {};
  const auto size = static_cast<std::size_t>(spec_.step.batch * spec_.step.context);
  const std::vector<int32_t>& ids = tokens_[static_cast<std::size_t>(count_++ % kBatches)];
  return {{ids.data(), size}, {ids.data() + 1, size}};
}

void SyntheticStep::make_inputs() {
  const Shape shape{spec_.step.batch, spec_.step.context};
  ids_ = ctx_.empty(shape, DType::i32, Tag::data);
  targets_ = ctx_.empty(shape, DType::i32, Tag::data);
  if (!tokens_.empty()) {
    ctx_.upload(ids_, tokens_.front().data());
    ctx_.upload(targets_, tokens_.front().data() + 1);
  }
  loss_ = ctx_.zeros({1}, stat_dtype(model_->params().values().dtype()));
  pool_.emplace(ctx_.allocator());
}

SyntheticStep::~SyntheticStep() {
  ctx_.synchronize();
  ctx_.tape().reset();
}

void SyntheticStep::run() {
  if (!whole_) return run_part();
  std::vector<HostBatch> batches;
  for (int i = 0; i < spec_.step.micro_steps; ++i) batches.push_back(next_batch());
  whole_->run(batches, kLearningRate);
}

void SyntheticStep::run_part() {
  model_->params().begin_step();
  for (int i = 0; i < spec_.step.micro_steps; ++i) (i == 0 ? *first_ : *next_).run([&] { micro_step(); });
}

void SyntheticStep::micro_step() {
  const PhaseGuard phase(ctx_, Phase::forward);
  ctx_.tape().reset();
  const GradModeGuard mode(ctx_, spec_.mode == StepMode::forward ? GradMode::off : GradMode::record);
  const Tensor loss = model_->loss(ctx_, ids_, targets_);
  ctx_.backend().copy_within(loss_.raw(), loss.raw(), loss_.bytes().value, ctx_.compute());
  if (spec_.mode == StepMode::forward_backward) ctx_.tape().backward(loss, loss_grad_);
}

void SyntheticStep::run_forward() {
  if (!ids_.defined()) make_inputs();
  if (!forward_) forward_.emplace(ctx_, *pool_, spec_.step.graph);
  for (int i = 0; i < spec_.step.micro_steps; ++i) {
    forward_->run([&] {
      const PhaseGuard phase(ctx_, Phase::forward);
      ctx_.tape().reset();
      const GradModeGuard off(ctx_, GradMode::off);
      const Tensor loss = model_->loss(ctx_, ids_, targets_);
      ctx_.backend().copy_within(loss_.raw(), loss.raw(), loss_.bytes().value, ctx_.compute());
    });
  }
}

double SyntheticStep::finish() {
  if (whole_) return whole_->finish().loss;
  double loss = 0;
  if (loss_.dtype() == DType::f64) {
    ctx_.download(&loss, loss_);
  } else {
    float narrow = 0;
    ctx_.download(&narrow, loss_);
    loss = static_cast<double>(narrow);
  }
  if (!std::isfinite(loss)) throw Error(cat("the loss is ", loss));
  return loss;
}

bool SyntheticStep::captured() const { return whole_ ? whole_->captured() : first_->captured(); }

}  // namespace kiln
