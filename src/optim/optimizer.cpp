#include "optim/optimizer.h"

#include <algorithm>

namespace kiln {

Tensor grown_state(RankContext& ctx, const Tensor& state, int64_t elements) {
  const Tensor grown = ctx.zeros({elements}, state.dtype(), Tag::optim);
  ctx.backend().copy_within(grown.raw(), state.raw(), state.bytes().value, ctx.compute());
  return grown;
}

std::vector<ParamSpan> missing_spans(const Optimizer& optimizer, std::vector<ParamSpan> spans) {
  const std::vector<ParamSpan>& held = optimizer.spans();
  std::erase_if(spans, [&](const ParamSpan& s) {
    return std::any_of(held.begin(), held.end(), [&](const ParamSpan& h) { return h.name == s.name; });
  });
  return spans;
}

}  // namespace kiln
