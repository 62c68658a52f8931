#include "studies/gate/probe.h"

#include <fmt/format.h>

#include <cmath>

#include "autograd/host_floats.h"
#include "autograd/tape.h"
#include "base/plain_number.h"
#include "model/param_values.h"

namespace kiln {
namespace {

constexpr int64_t kProbeValues = 65536;  // of a parameter

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

// Some of a parameter's values, evenly spaced.
ParamGradient thinned(const std::string& name, const std::vector<float>& whole, double factor) {
  const auto n = static_cast<int64_t>(whole.size());
  // Odd, so that it does not keep hitting the same columns of a matrix.
  const int64_t stride = n <= kProbeValues ? 1 : (n / kProbeValues) | 1;
  ParamGradient g{name, {}};
  for (int64_t i = 0; i < n; i += stride)
    g.values.push_back(static_cast<float>(factor * static_cast<double>(whole[static_cast<std::size_t>(i)])));
  return g;
}

void find_worst(const std::vector<ParamGradient>& exact, const std::vector<ParamGradient>& seen,
                double& worst, std::string& name) {
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const ParamGradient& a = exact[i];
    const bool there = i < seen.size() && seen[i].name == a.name;
    const double error = there ? relative_error(a.values, seen[i].values) : INFINITY;
    if (error <= worst && !name.empty()) continue;
    worst = error;
    name = a.name;
  }
}

}  // namespace

std::vector<float> probe_logits(RankContext& ctx, const Model& model, const std::vector<int32_t>& ids,
                                int64_t rows) {
  const Tensor input = ctx.empty({rows, static_cast<int64_t>(ids.size()) / rows}, DType::i32, Tag::data);
  ctx.upload(input, ids.data());
  const GradModeGuard off(ctx, GradMode::off);
  const Tensor logits = model.logits(ctx, input);
  std::vector<float> values(static_cast<std::size_t>(logits.numel()));
  download_floats(ctx, logits, values);
  return values;
}

std::vector<ParamGradient> probe_gradients(RankContext& ctx, ParamStore& params, double factor) {
  std::vector<ParamGradient> all;
  std::vector<float> whole;
  for (const Param& p : params.params()) {
    const int64_t n = p.shape.numel();
    whole.resize(static_cast<std::size_t>(n));
    download_floats(ctx, params.local_grad(p).narrow(0, 0, n), whole);
    all.push_back(thinned(p.name, whole, factor));
  }
  return all;
}

std::vector<ParamGradient> probe_weights(RankContext& ctx, ParamStore& params) {
  std::vector<ParamGradient> all;
  std::vector<float> whole;
  ParamValues values(ctx, params);
  for (const Param& p : params.params()) {
    whole.resize(static_cast<std::size_t>(p.shape.numel()));
    values.download(p.offset, whole);
    all.push_back(thinned(p.name, whole, 1));
  }
  return all;
}

GateTolerance tolerance_of(Precision p) {
  if (p == Precision::fp32) return {2e-5, 1e-4, 1e-4, 5e-2};
  return {5e-2, 1e-1, 1e-2, 0.7};
}

GateErrors errors_against(const GateProbe& baseline, const GateProbe& judged) {
  GateErrors errors;
  errors.logits = relative_error(baseline.logits, judged.logits);
  find_worst(baseline.gradients, judged.gradients, errors.gradients, errors.worst_gradient);
  find_worst(baseline.updates, judged.updates, errors.updates, errors.worst_update);
  errors.loss = std::abs(judged.last_loss - baseline.last_loss) / std::abs(baseline.last_loss);
  if (!std::isfinite(errors.loss)) errors.loss = INFINITY;
  return errors;
}

std::string why_not_passed(const GateErrors& e, const GateTolerance& allowed) {
  std::string why;
  const auto judge = [&](const std::string& what, double error, double most) {
    if (error <= most) return;
    why += fmt::format("{}{} off by {}, allowed is {}", why.empty() ? "" : "; ", what, plain(error, 2),
                       plain(most, 2));
  };
  judge("logits are", e.logits, allowed.logits);
  judge(fmt::format("gradients of {} are", e.worst_gradient), e.gradients, allowed.gradients);
  judge(fmt::format("the update of {} is", e.worst_update), e.updates, allowed.updates);
  judge("the loss after training is", e.loss, allowed.loss);
  return why;
}

}  // namespace kiln
