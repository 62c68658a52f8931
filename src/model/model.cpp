#include "model/model.h"

#include "model/llama.h"

namespace kiln {

std::unique_ptr<Model> make_model(const ModelConfig& config, const Partition& partition) {
  return std::make_unique<Llama>(config, partition);
}

}  // namespace kiln
