// AdamW over the spans of a model: one moment pair per flat buffer. Variants that take ranges get one op call
// per run of adjacent parameters, which is the whole model unless some are frozen; the others one per
// parameter.
#pragma once

#include <vector>

#include "ops/adamw/adamw.h"
#include "optim/optimizer.h"

namespace kiln {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0.01;
};

class AdamWOptimizer final : public Optimizer {
 public:
  AdamWOptimizer(RankContext& ctx, std::vector<ParamSpan> spans, const AdamWOptions& options);

  void step(RankContext& ctx, const Tensor& scalars) override;
  // The record's powers of beta begin anew, for the bias correction of those that join; what they were stays
  // with those that had it. A checkpoint holds the powers of one group only.
  void add(RankContext& ctx, std::vector<ParamSpan> spans, const Tensor& scalars) override;

  const AdamWOptions& options() const { return options_; }
  const Tensor& m() const { return m_; }
  const Tensor& v() const { return v_; }

 private:
  struct Run {  // adjacent in the store's flat buffers, and so in the moments
    AdamWTensors tensors;
    Tensor segments;   // each parameter's decay; undefined for one
    double decay = 0;  // of that one
    BetaPowers before;
  };
  AdamWTensors tensors_of(const ParamSpan& s, int64_t at) const;
  void find_runs(RankContext& ctx);

  AdamWOptions options_;
  std::vector<BetaPowers> before_;  // one a span
  Tensor m_, v_;                    // flat, the spans one after another
  std::vector<Run> runs_;
};

}  // namespace kiln
