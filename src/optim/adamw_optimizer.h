// AdamW over the spans of a model: one moment pair per flat buffer. Variants that take ranges get one op call
// per run of adjacent parameters, which is the whole model unless some are frozen; the others one per
// parameter.
#pragma once

#include <vector>

#include "autograd/param_store.h"
#include "ops/adamw/adamw.h"

namespace kiln {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0.01;
};

class AdamWOptimizer {
 public:
  AdamWOptimizer(RankContext& ctx, std::vector<ParamSpan> spans, const AdamWOptions& options);

  // Reads learning rate, clip factor and verdict from the device record.
  void step(RankContext& ctx, const Tensor& scalars);

  const AdamWOptions& options() const { return options_; }
  const std::vector<ParamSpan>& spans() const { return spans_; }
  const Tensor& m() const { return m_; }
  const Tensor& v() const { return v_; }

 private:
  struct Run {  // adjacent in the store's flat buffers, and so in the moments
    AdamWTensors tensors;
    Tensor segments;  // each parameter's decay
  };
  AdamWTensors tensors_of(const ParamSpan& s, int64_t at) const;
  void find_runs(RankContext& ctx);

  std::vector<ParamSpan> spans_;
  AdamWOptions options_;
  Tensor m_, v_;  // flat, the spans one after another
  std::vector<Run> runs_;
};

}  // namespace kiln
