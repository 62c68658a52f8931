// AdamW over the spans of a model: state m and v, the moments, one pair per flat buffer. Variants that take
// ranges get one op call per run of adjacent parameters, which is the whole model unless some are frozen; the
// others one per parameter.
#pragma once

#include <vector>

#include "ops/adamw/adamw.h"
#include "optim/optimizer.h"

namespace kiln {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;  // a short run's second moment must forget the first steps
  double eps = 1e-8, decay = kWeightDecay;
};

class AdamWOptimizer final : public Optimizer {
 public:
  AdamWOptimizer(RankContext& ctx, std::vector<ParamSpan> spans, const AdamWOptions& options);

  void step(RankContext& ctx, const Tensor& scalars) override;
  StepRates rates() const override { return {options_.beta1, options_.beta2}; }
  bool resumable() const override;
  // The record's powers of beta restart, for the bias correction of those that join; what they were stays
  // with those that had it, and on this rank: resumable() no more.
  void add(RankContext& ctx, std::vector<ParamSpan> spans, const Tensor& scalars) override;

 private:
  struct Run {  // adjacent in the store's flat buffers, and so in the moments
    AdamWTensors tensors;
    Tensor segments;   // each parameter's decay; undefined for one
    double decay = 0;  // of that one
    BetaPowers before;
  };
  const Tensor& m() const { return state()[0].values; }
  const Tensor& v() const { return state()[1].values; }
  AdamWTensors tensors_of(const ParamSpan& s, int64_t at) const;
  void find_runs(RankContext& ctx);

  AdamWOptions options_;
  std::vector<BetaPowers> before_;  // one a span
  std::vector<Run> runs_;
};

}  // namespace kiln
