// What an optimizer is to a strategy: something that updates the spans it is given, wherever they lie. A rank
// that gives it a part of every parameter, or a part of the parameters, has a sharded optimizer.
#pragma once

#include <vector>

#include "autograd/param_store.h"

namespace kiln {

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Reads learning rate, clip factor and verdict from the device record.
  virtual void step(RankContext& ctx, const Tensor& scalars) = 0;
  // More spans, between two steps: their state starts at nothing, and that of the others is kept. The host
  // waits. What counts steps counts theirs from here on.
  virtual void add(RankContext& ctx, std::vector<ParamSpan> spans, const Tensor& scalars) = 0;

  const std::vector<ParamSpan>& spans() const { return spans_; }

 protected:
  explicit Optimizer(std::vector<ParamSpan> spans) : spans_(std::move(spans)) {}
  int64_t elements() const {
    int64_t n = 0;
    for (const ParamSpan& s : spans_) n += s.value.numel();
    return n;
  }

  std::vector<ParamSpan> spans_;
};

// `state`, flat, with room for `elements`: what it held, then zeros.
Tensor grown_state(RankContext& ctx, const Tensor& state, int64_t elements);

// Those of `spans` that the optimizer does not have yet: what to add once more parameters are trainable.
std::vector<ParamSpan> missing_spans(const Optimizer& optimizer, std::vector<ParamSpan> spans);

}  // namespace kiln
