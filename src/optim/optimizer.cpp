#include "optim/optimizer.h"

#include <algorithm>

namespace kiln {

void Optimizer::keep_state(RankContext& ctx, std::string_view name, DType dtype) {
  state_.push_back({name, ctx.zeros({elements()}, dtype, Tag::optim)});
}

void Optimizer::add(RankContext& ctx, std::vector<ParamSpan> more, const Tensor&) {
  for (ParamSpan& span : more) spans_.push_back(std::move(span));
  for (OptimizerState& s : state_) {
    const Tensor grown = ctx.zeros({elements()}, s.values.dtype(), Tag::optim);
    ctx.backend().copy_within(grown.raw(), s.values.raw(), s.values.bytes().value, ctx.compute());
    s.values = grown;
  }
}

const Tensor& Optimizer::state(std::string_view name) const {
  static const Tensor kNone;
  const auto found =
      std::find_if(state_.begin(), state_.end(), [&](const OptimizerState& s) { return s.name == name; });
  return found == state_.end() ? kNone : found->values;
}

std::vector<ParamSpan> missing_spans(const Optimizer& optimizer, std::vector<ParamSpan> spans) {
  const std::vector<ParamSpan>& held = optimizer.spans();
  std::erase_if(spans, [&](const ParamSpan& s) {
    return std::any_of(held.begin(), held.end(), [&](const ParamSpan& h) { return h.name == s.name; });
  });
  return spans;
}

}  // namespace kiln
