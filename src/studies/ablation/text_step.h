// A model, its training step and a loader on real text, ready to be run: what `kiln ablate` checks and times.
// Unlike SyntheticStep, which repeats a few random batches, the loader is part of the step here, and the loss
// can fall.
#pragma once

#include <memory>

#include "data/batch_loader.h"
#include "studies/ablation/ablation_switches.h"

namespace kiln {

// kiln's own sources as bytes; folded where a model has fewer than 256 tokens.
std::shared_ptr<const TokenSet> byte_tokens(int64_t vocab, ThreadPool& pool);

class TextStep {
 public:
  // Draws weights by the rank's seed; the batches follow from it too, and not from the setup.
  TextStep(RankContext& ctx, const AblationSetup& setup, std::shared_ptr<const TokenSet> tokens);
  ~TextStep();
  TextStep(const TextStep&) = delete;
  TextStep& operator=(const TextStep&) = delete;

  void run();            // takes the next batch and queues a step
  StepScalars finish();  // waits for the last one. Throws where it was not finite
  Model& model() { return *model_; }
  bool captured() const { return step_->captured(); }

 private:
  RankContext& ctx_;
  std::unique_ptr<Model> model_;
  Strategy one_rank_;
  BatchLoader loader_;
  std::unique_ptr<TrainStep> step_;
};

}  // namespace kiln
