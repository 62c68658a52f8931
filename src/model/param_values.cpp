#include "model/param_values.h"

#include <algorithm>
#include <iterator>

#include "autograd/host_floats.h"

namespace kiln {

ParamValues::ParamValues(RankContext& ctx, ParamStore& store)
    : NamedValues("weight"), ctx_(ctx), store_(store) {
  if (!store.values().defined())
    throw Error("the model has no weights yet", "materialize its ParamStore first");
  if (ctx.device().is_meta()) throw Error("a model on meta has no values to read or write");
  const int64_t all = store.values().numel(), low = store.low().defined() ? store.low().numel() : all;
  for (const Param& p : store.params()) {
    if (low < all) {
      const int64_t world = all / low, count = p.padded / world, begin = count * store.data_rank();
      pieces_.push_back({p.offset / world, p.offset + begin});
      add(p, store.part(p), begin, std::min(count, p.shape.numel() - begin), p.offset / world);
      continue;
    }
    const int64_t begin = store.local_begin(p);
    add(p, store.part(p), begin, std::min(p.local(), p.shape.numel() - begin), p.offset);
  }
  std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) { return a.low < b.low; });
}

int64_t ParamValues::weight_at(int64_t at) const {
  if (pieces_.empty()) return at;
  const auto next = std::upper_bound(pieces_.begin(), pieces_.end(), at,
                                     [](int64_t place, const Piece& p) { return place < p.low; });
  const Piece& piece = *std::prev(next);
  return piece.value + at - piece.low;
}

void ParamValues::download(int64_t at, std::span<float> out) {
  const auto n = static_cast<int64_t>(out.size());
  const Tensor values = store_.values().narrow(0, weight_at(at), n);
  if (store_.low().defined()) {
    std::vector<bf16> high(out.size());
    std::vector<int16_t> low(out.size());
    ctx_.download(high.data(), values);
    ctx_.download(low.data(), store_.low().narrow(0, at, n));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = join_float(high[i], low[i]);
    return;
  }
  download_floats(ctx_, values, out);
}

void ParamValues::upload(int64_t at, std::span<const float> in) {
  const auto n = static_cast<int64_t>(in.size());
  const Tensor values = store_.values().narrow(0, weight_at(at), n);
  if (store_.low().defined()) {
    std::vector<bf16> high(in.size());
    std::vector<int16_t> low(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
      const SplitFloat s = split_float(in[i]);
      high[i] = s.high;
      low[i] = s.low;
    }
    ctx_.upload(values, high.data());
    ctx_.upload(store_.low().narrow(0, at, n), low.data());
    return;
  }
  upload_floats(ctx_, values, in);
}

}  // namespace kiln
