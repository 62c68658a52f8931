#include "model/param_values.h"

#include <vector>

#include "autograd/host_floats.h"

namespace kiln {

ParamValues::ParamValues(RankContext& ctx, ParamStore& store) : ctx_(ctx), store_(store) {
  if (!store.values().defined())
    throw Error("the model has no weights yet", "materialize its ParamStore first");
  if (store.layout().sharded)
    throw Error(cat("the weights are sharded over ", store.shards(), " rank(s); whole ones are needed here"),
                "gather them first: this reads and writes unsharded stores only");
  if (ctx.device().is_meta()) throw Error("a model on meta has no values to read or write");
  for (const Param& p : store.params()) {
    for (const ParamView& v : p.views) places_.emplace(v.name, Place{&p, &v});
  }
}

Tensor ParamValues::range(const Tensor& flat, const WeightSpec& weight, int64_t first_row,
                          std::size_t count) const {
  const auto found = places_.find(weight.name);
  if (found == places_.end()) throw Error(cat("the model has no weight ", weight.name));
  const auto& [param, view] = found->second;
  Shape shape = param->shape;
  shape[0] = view->rows;
  if (!(shape == weight.shape))
    throw Error(cat("weight ", weight.name, " is ", shape.str(), " in the model, not ", weight.shape.str()));
  const int64_t begin = first_row * weight.columns();
  const auto n = static_cast<int64_t>(count);
  if (first_row < 0 || begin + n > shape.numel())
    throw Error(cat("weight ", weight.name, " ", shape.str(), ": ", n, " values from row ", first_row,
                    " on reach beyond its end"));
  return flat.narrow(0, param->offset + view->row_begin * weight.columns() + begin, n);
}

void ParamValues::read(const WeightSpec& weight, int64_t first_row, std::span<float> out) {
  const Tensor values = range(store_.values(), weight, first_row, out.size());
  if (store_.low().defined()) {
    std::vector<bf16> high(out.size());
    std::vector<int16_t> low(out.size());
    ctx_.download(high.data(), values);
    ctx_.download(low.data(), range(store_.low(), weight, first_row, out.size()));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = join_float(high[i], low[i]);
    return;
  }
  download_floats(ctx_, values, out);
}

void ParamValues::write(const WeightSpec& weight, int64_t first_row, std::span<const float> in) {
  const Tensor values = range(store_.values(), weight, first_row, in.size());
  if (store_.low().defined()) {
    std::vector<bf16> high(in.size());
    std::vector<int16_t> low(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
      const SplitFloat s = split_float(in[i]);
      high[i] = s.high;
      low[i] = s.low;
    }
    ctx_.upload(values, high.data());
    ctx_.upload(range(store_.low(), weight, first_row, in.size()), low.data());
    return;
  }
  upload_floats(ctx_, values, in);
}

}  // namespace kiln
