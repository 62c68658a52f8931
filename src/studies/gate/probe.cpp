#include "studies/gate/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "autograd/host_floats.h"
#include "autograd/tape.h"

namespace kiln {
namespace {

constexpr int kLeastSteps = 2;
constexpr int64_t kProbeTokens = 256;       // logits of more would be gigabytes with a large vocabulary
constexpr int64_t kProbeGradients = 65536;  // of a parameter

std::vector<float> probe_logits(RankContext& ctx, TrainingSteps& steps, const TokenSet& tokens,
                                int64_t context) {
  const int64_t T = std::min(context, kProbeTokens);
  std::vector<int32_t> ids(static_cast<std::size_t>(T));
  tokens.shards().front().read(0, ids, tokens.vocab_size());
  const Tensor input = ctx.empty({1, T}, DType::i32, Tag::data);
  ctx.upload(input, ids.data());
  const GradModeGuard off(ctx, GradMode::off);
  const Tensor logits = steps.model().logits(ctx, input);
  std::vector<float> values(static_cast<std::size_t>(logits.numel()));
  download_floats(ctx, logits, values);
  return values;
}

std::vector<ParamGradient> probe_gradients(RankContext& ctx, ParamStore& params) {
  std::vector<ParamGradient> all;
  std::vector<float> whole;
  for (const Param& p : params.params()) {
    const int64_t n = p.shape.numel();
    whole.resize(static_cast<std::size_t>(n));
    download_floats(ctx, params.local_grad(p).narrow(0, 0, n), whole);
    // Odd, so that it does not keep meeting the same columns of a matrix.
    const int64_t stride = n <= kProbeGradients ? 1 : (n / kProbeGradients) | 1;
    ParamGradient& g = all.emplace_back();
    g.name = p.name;
    for (int64_t i = 0; i < n; i += stride) g.values.push_back(whole[static_cast<std::size_t>(i)]);
  }
  return all;
}

// Infinite where one side is not finite, or has another size: nothing passes with it.
double relative_error(const std::vector<float>& exact, const std::vector<float>& seen) {
  if (exact.size() != seen.size()) return INFINITY;
  double apart = 0, size = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double e = exact[i], d = static_cast<double>(seen[i]) - e;
    apart += d * d;
    size += e * e;
  }
  if (!std::isfinite(apart) || !std::isfinite(size)) return INFINITY;
  return apart == 0 ? 0 : std::sqrt(apart / size);
}

}  // namespace

GateProbe probe_setup(RankContext& ctx, const AblationSetup& setup,
                      const std::shared_ptr<const TokenSet>& tokens, int steps) {
  GateProbe probe;
  probe.steps = std::max(steps, kLeastSteps);
  TrainingSteps training(ctx, setup, tokens);
  probe.logits = probe_logits(ctx, training, *tokens, setup.spec.step.context);
  training.run();
  probe.first_loss = training.finish().loss;
  probe.gradients = probe_gradients(ctx, training.model().params());  // the update reads them, no more
  for (int s = 0; s < probe.steps; ++s) training.run();  // the last one's loss is that after `steps` updates
  probe.last_loss = training.finish().loss;
  return probe;
}

GateTolerance tolerance_of(Precision p) {
  if (p == Precision::fp32) return {2e-5, 1e-4, 1e-4};
  return {5e-2, 1e-1, 1e-2};
}

GateErrors errors_against(const GateProbe& baseline, const GateProbe& judged) {
  GateErrors errors;
  errors.logits = relative_error(baseline.logits, judged.logits);
  for (std::size_t i = 0; i < baseline.gradients.size(); ++i) {
    const ParamGradient& a = baseline.gradients[i];
    const bool there = i < judged.gradients.size() && judged.gradients[i].name == a.name;
    const double error = there ? relative_error(a.values, judged.gradients[i].values) : INFINITY;
    if (error <= errors.gradients && !errors.worst_gradient.empty()) continue;
    errors.gradients = error;
    errors.worst_gradient = a.name;
  }
  errors.loss = std::abs(judged.last_loss - baseline.last_loss) / std::abs(baseline.last_loss);
  if (!std::isfinite(errors.loss)) errors.loss = INFINITY;
  return errors;
}

std::string why_not_passed(const GateErrors& e, const GateTolerance& allowed) {
  std::string why;
  const auto judge = [&](const std::string& what, double error, double most) {
    if (error <= most) return;
    why += fmt::format("{}{} off by {:.2g}, allowed are {:.2g}", why.empty() ? "" : "; ", what, error, most);
  };
  judge("logits are", e.logits, allowed.logits);
  judge(fmt::format("gradients of {} are", e.worst_gradient), e.gradients, allowed.gradients);
  judge("the loss after training is", e.loss, allowed.loss);
  return why;
}

}  // namespace kiln
