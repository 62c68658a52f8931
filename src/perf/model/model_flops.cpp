#include "perf/model/model_flops.h"

#include "autograd/tape.h"
#include "model/model.h"

namespace kiln {
namespace {

class FlopCounter final : public OpObserver {
 public:
  void on_op_begin(RankContext&, const OpEvent& e) override {
    const bool forward = e.pass == Pass::forward;  // a replayed span's backward runs once
    (!forward ? flops.backward : e.recomputed ? flops.recomputed : flops.forward) += e.cost.flops;
  }
  StepFlops flops;
};

}  // namespace

StepFlops micro_step_flops(const ModelConfig& config, int64_t batch, int64_t context) {
  RankOptions options;
  options.device = Device::meta();
  RankContext ctx(options);
  const std::unique_ptr<Model> made = make_model(config);
  Model& model = *made;
  model.params().materialize(ctx);
  const Tensor ids = ctx.empty({batch, context}, DType::i32, Tag::data);
  const Tensor one = ctx.empty({1}, DType::f32, Tag::activation);
  FlopCounter counter;
  ctx.add_observer(&counter);
  model.params().begin_step();
  ctx.tape().reset();
  ctx.tape().backward(model.loss(ctx, ids, ids), one);
  ctx.tape().reset();
  ctx.remove_observer(&counter);
  return counter.flops;
}

}  // namespace kiln
