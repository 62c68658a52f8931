#include "model/weight_source.h"

#include "autograd/init_weights.h"
#include "model/model.h"

namespace kiln {

std::vector<WeightSpec> weight_specs(const ModelConfig& config) {
  const std::unique_ptr<Model> model = make_model(config);
  std::vector<WeightSpec> specs;
  for (const Param& p : model->params().params()) {
    for (const ParamView& v : p.views) {
      Shape shape = p.shape;
      shape[0] = v.rows;
      specs.push_back({v.name, shape, v.init});
    }
  }
  return specs;
}

void RandomWeights::read(const WeightSpec& weight, int64_t first_row, std::span<float> out) {
  const Tensor drawn = ctx_.empty({static_cast<int64_t>(out.size())}, DType::f32);
  init_weights(ctx_, drawn, {}, weight.init, weight.name, first_row * weight.columns());
  ctx_.download(out.data(), drawn);
}

}  // namespace kiln
