#include "studies/gate/composed_step.h"

#include <algorithm>
#include <cmath>

#include "autograd/host_floats.h"
#include "autograd/tape.h"
#include "base/rng.h"
#include "train/presets.h"
#include "train/run/tuned.h"
#include "train/step.h"

namespace kiln {
namespace {

constexpr int64_t kTokens = 128, kFewestTokens = 8;
constexpr double kLearningRate = 1e-3;  // an update that is wrong must show in the loss
constexpr double kLossScale = 256;      // of fp16: high enough for its gradients, too low to overflow

double parameters_of(const ModelConfig& c) {
  const auto C = static_cast<double>(c.d_model), F = static_cast<double>(c.d_ff);
  const auto Q = static_cast<double>(c.heads * c.head_dim()),
             KV = static_cast<double>(c.kv_heads * c.head_dim());
  return static_cast<double>(c.layers) * (C * (2 * Q + 2 * KV) + 3 * C * F) +
         C * static_cast<double>(c.vocab);
}

// Forward only: the loss, of weights that nothing updates.
void probe_forward(RankContext& ctx, Model& model, const StepSpec& spec, const std::vector<int32_t>& ids,
                   GateProbe& probe) {
  const Shape shape{spec.step.batch, spec.step.context};
  const Tensor tokens = ctx.empty(shape, DType::i32, Tag::data),
               targets = ctx.empty(shape, DType::i32, Tag::data);
  ctx.upload(tokens, ids.data());
  ctx.upload(targets, ids.data() + 1);
  const GradModeGuard off(ctx, GradMode::off);
  const Tensor loss = model.loss(ctx, tokens, targets);
  std::vector<float> value(1);
  download_floats(ctx, loss, value);
  probe.first_loss = probe.last_loss = static_cast<double>(value[0]);
}

std::vector<ParamGradient> differences(std::vector<ParamGradient> after,
                                       const std::vector<ParamGradient>& before) {
  for (std::size_t i = 0; i < after.size(); ++i) {
    for (std::size_t j = 0; j < after[i].values.size(); ++j) after[i].values[j] -= before[i].values[j];
  }
  return after;
}

void probe_training(RankContext& ctx, Model& model, const StepSpec& spec, const std::vector<int32_t>& ids,
                    GateProbe& probe) {
  Strategy one_rank;
  one_rank.attach(model.params());
  TrainStep step(ctx, model, one_rank, spec.step);
  const auto size = static_cast<std::size_t>(spec.step.batch * spec.step.context);
  std::vector<HostBatch> batches;
  for (int m = 0; m < spec.step.micro_steps; ++m) {
    const int32_t* at = ids.data() + static_cast<std::size_t>(m) * (size + 1);
    batches.push_back({{at, size}, {at + 1, size}});
  }
  const std::vector<ParamGradient> before = probe_weights(ctx, model.params());
  step.run(batches, kLearningRate);
  const StepScalars first = step.finish();
  probe.first_loss = first.loss;
  probe.gradients = probe_gradients(ctx, model.params(), first.unscale);
  // Weights of 16 bits alone lose most of so small an update to rounding, rightly.
  if (spec.mode == StepMode::full && spec.precision != Precision::pure_bf16)
    probe.updates = differences(probe_weights(ctx, model.params()), before);
  for (int s = 0; s < probe.steps; ++s) step.run(batches, kLearningRate);
  probe.last_loss = step.finish().loss;
}

}  // namespace

StepSpec composed_spec(const StepSpec& spec, const Device& device) {
  StepSpec s = spec;
  s.model.layers = std::min<int64_t>(2, s.model.layers);
  int64_t tokens = kTokens;
  if (device.type == DeviceType::cpu) {
    constexpr double kWork = 1e10;  // operations of a step: a tenth of a second on two cores
    tokens = std::clamp<int64_t>(static_cast<int64_t>(kWork / (6 * parameters_of(s.model))), kFewestTokens,
                                 kTokens);
  }
  s.step.context = std::min(s.step.context, tokens);
  s.step.batch = std::clamp<int64_t>(tokens / s.step.context, 1, std::min<int64_t>(2, s.step.batch));
  s.step.micro_steps = std::min(2, s.step.micro_steps);
  s.step.loss_scale.initial = kLossScale;
  return s;
}

StepSpec reference_spec(const StepSpec& composed, const Device& device) {
  StepSpec s = composed;
  choose_variants("baseline", "", device.target).apply_to(s.model);
  s.model.recompute = Recompute::none;
  s.model.compile = CompileMode::none;
  s.model.fused_linear_ce = false;
  s.precision = Precision::fp32;
  s.step.graph = false;
  return s;
}

RankOptions reference_rank(const RankOptions& rank) {
  RankOptions o = rank;
  o.variants = choose_variants("baseline", "", rank.device.target).ops;
  o.attention_choices = {};
  return o;
}

GateProbe probe_step(const RankOptions& rank, const std::optional<TuneFile>& tuning, const StepSpec& spec) {
  RankContext ctx(rank);
  if (tuning) use_tuning(ctx, *tuning);
  const std::unique_ptr<Model> model = make_model(spec.model);
  ParamLayout layout = layout_for(spec.precision, spec.step);
  layout.inference = spec.mode == StepMode::forward;
  model->params().materialize(ctx, layout);
  if (layout.inference) model->params().draw_values(ctx);
  std::vector<int32_t> ids(static_cast<std::size_t>(spec.step.micro_steps) *
                           static_cast<std::size_t>(spec.step.batch * spec.step.context + 1));
  const PhiloxKey key = philox_key(ctx.seed(), "gate tokens");
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>(philox(key, i, 0).x % static_cast<uint64_t>(spec.model.vocab));
  GateProbe probe;
  // The second shows what the update did; where it is captured in its second run, the third that replay's.
  probe.steps = rank.device.type == DeviceType::cuda ? 2 : 1;
  const auto size = static_cast<std::ptrdiff_t>(spec.step.batch * spec.step.context);
  probe.logits = probe_logits(ctx, *model, {ids.begin(), ids.begin() + size}, spec.step.batch);
  if (spec.mode == StepMode::forward) {
    probe_forward(ctx, *model, spec, ids, probe);
  } else {
    probe_training(ctx, *model, spec, ids, probe);
  }
  ctx.synchronize();
  ctx.tape().reset();
  return probe;
}

std::string why_composed_differs(const GateProbe& reference, const GateProbe& judged, Precision precision,
                                 GateErrors& errors) {
  GateProbe seen = reference;  // no more of it than was looked at
  if (judged.updates.empty()) seen.updates.clear();
  errors = errors_against(seen, judged);
  const double first = std::abs(judged.first_loss - reference.first_loss) / std::abs(reference.first_loss);
  if (!(first <= errors.loss)) errors.loss = first;
  return why_not_passed(errors, tolerance_of(precision));
}

}  // namespace kiln
