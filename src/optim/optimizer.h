// The interface of an optimizer to a step, a strategy and a checkpoint: it updates the spans it is given,
// wherever they are, and keeps named state tensors for them. A rank that gives it a part of every
// parameter, or a part of the parameters, has a sharded optimizer.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "autograd/param_store.h"
#include "ops/step_scalars/step_scalars.h"

namespace kiln {

constexpr double kWeightDecay = 0.1;  // of every optimizer, where nobody says another

// One number per weight: flat, the spans one after another. Its name goes to disk, as
// "<name>.<weight>", so it is never changed.
struct OptimizerState {
  std::string_view name;
  Tensor values;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Reads learning rate, clip factor and the finite flag from the device record.
  virtual void step(RankContext& ctx, const Tensor& scalars) = 0;
  // More spans, between two steps: their state starts at nothing, and that of the others is kept. The host
  // waits. What counts steps counts theirs from here on.
  virtual void add(RankContext& ctx, std::vector<ParamSpan> spans, const Tensor& scalars);
  // Whose powers the record is to carry.
  virtual StepRates rates() const { return {}; }
  // Whether state tensors and record are all it is made of: what a checkpoint holds.
  virtual bool resumable() const { return true; }

  const std::vector<ParamSpan>& spans() const { return spans_; }
  std::span<const OptimizerState> state() const { return state_; }
  // Undefined where it keeps none of that name.
  const Tensor& state(std::string_view name) const;

 protected:
  explicit Optimizer(std::vector<ParamSpan> spans) : spans_(std::move(spans)) {}
  void keep_state(RankContext& ctx, std::string_view name, DType dtype);  // zeros, for all spans
  int64_t elements() const {
    int64_t n = 0;
    for (const ParamSpan& s : spans_) n += s.value.numel();
    return n;
  }

  std::vector<ParamSpan> spans_;

 private:
  std::vector<OptimizerState> state_;
};

// Those of `spans` that the optimizer does not have yet: what to add once more parameters are trainable.
std::vector<ParamSpan> missing_spans(const Optimizer& optimizer, std::vector<ParamSpan> spans);

}  // namespace kiln
