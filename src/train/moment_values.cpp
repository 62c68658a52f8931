#include "train/moment_values.h"

#include "autograd/host_floats.h"

namespace kiln {

MomentValues::MomentValues(RankContext& ctx, ParamStore& store, const AdamWOptimizer& optimizer, Moment which)
    : ctx_(ctx), flat_(which == Moment::first ? optimizer.m() : optimizer.v()) {
  if (store.layout().sharded) throw Error("the moments are sharded over ranks; whole ones are needed here");
  if (ctx.device().is_meta()) throw Error("an optimizer on meta has no values to read or write");
  std::unordered_map<std::string, int64_t> begins;
  int64_t at = 0;
  for (const ParamSpan& s : optimizer.spans()) {
    begins.emplace(s.name, at);
    at += s.value.numel();
  }
  for (const Param& p : store.params()) {
    const auto begin = begins.find(p.name);
    if (begin == begins.end()) continue;  // frozen: it has none
    const int64_t columns = p.shape.rank() == 1 ? 1 : p.shape[1];
    for (const ParamView& v : p.views)
      places_.emplace(v.name, Place{begin->second + v.row_begin * columns, v.rows * columns});
  }
}

Tensor MomentValues::range(const WeightSpec& weight, int64_t first_row, std::size_t count) const {
  const auto found = places_.find(weight.name);
  if (found == places_.end()) throw Error(cat("the optimizer has no moments of ", weight.name));
  const auto& [begin, elements] = found->second;
  const int64_t first = first_row * weight.columns();
  const auto n = static_cast<int64_t>(count);
  if (first_row < 0 || first + n > elements || weight.shape.numel() != elements)
    throw Error(cat("moments of ", weight.name, ": ", n, " values from row ", first_row, " on of ",
                    weight.shape.str(), "; there are ", elements));
  return flat_.narrow(0, begin + first, n);
}

void MomentValues::read(const WeightSpec& weight, int64_t first_row, std::span<float> out) {
  download_floats(ctx_, range(weight, first_row, out.size()), out);
}

void MomentValues::write(const WeightSpec& weight, int64_t first_row, std::span<const float> in) {
  upload_floats(ctx_, range(weight, first_row, in.size()), in);
}

}  // namespace kiln
