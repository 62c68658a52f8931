#include "studies/ablation/quality_gate.h"

#include <algorithm>

namespace kiln {
namespace {

constexpr int kLeastSteps = 2;
constexpr int64_t kProbeTokens = 256;  // logits of more would be gigabytes with a large vocabulary

}  // namespace

GateProbe probe_setup(RankContext& ctx, const AblationSetup& setup,
                      const std::shared_ptr<const TokenSet>& tokens, int steps, const StopAsked& stop) {
  GateProbe probe;
  probe.steps = std::max(steps, kLeastSteps);
  TextStep training(ctx, setup, tokens);
  std::vector<int32_t> ids(static_cast<std::size_t>(std::min(setup.spec.step.context, kProbeTokens)));
  tokens->shards().front().read(0, ids, tokens->vocab_size());
  probe.logits = probe_logits(ctx, training.model(), ids, 1);
  training.run();
  probe.first_loss = training.finish().loss;
  probe.gradients = probe_gradients(ctx, training.model().params());
  for (int s = 0; s < probe.steps; ++s) {  // the last one's loss is that after `steps` updates
    throw_if_stopped(stop);
    training.run();
  }
  probe.last_loss = training.finish().loss;
  return probe;
}

}  // namespace kiln
