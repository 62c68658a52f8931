#include "train/checkpoint/optimizer_values.h"

#include <algorithm>
#include <map>

#include "autograd/host_floats.h"

namespace kiln {

OptimizerValues::OptimizerValues(RankContext& ctx, ParamStore& store, const Optimizer& optimizer,
                                 const OptimizerState& state)
    : NamedValues("optimizer state"), ctx_(ctx), flat_(state.values) {
  if (ctx.device().is_meta()) throw Error("an optimizer on meta has no values to read or write");
  std::map<std::string_view, const Param*> params;
  for (const Param& p : store.params()) {
    params.emplace(p.name, &p);
    if (p.trainable) add(p, store.part(p), 0, 0, 0);  // it has state, be it all on other ranks
  }
  int64_t at = 0;
  for (const ParamSpan& s : optimizer.spans()) {
    const auto found = params.find(s.name);
    if (found == params.end())
      throw Error(cat("the optimizer has a span of ", s.name, ", the model has none"));
    const Param& p = *found->second;
    const int64_t begin = store.local_begin(p) + s.offset - p.offset, n = s.value.numel();
    add(p, store.part(p), begin, std::min(n, p.shape.numel() - begin), at);
    at += n;
  }
}

void OptimizerValues::download(int64_t at, std::span<float> out) {
  download_floats(ctx_, flat_.narrow(0, at, static_cast<int64_t>(out.size())), out);
}

void OptimizerValues::upload(int64_t at, std::span<const float> in) {
  upload_floats(ctx_, flat_.narrow(0, at, static_cast<int64_t>(in.size())), in);
}

}  // namespace kiln
