#include "perf/memory/block_residuals.h"

#include <cmath>

#include "autograd/tape.h"
#include "base/on_exit.h"
#include "model/model.h"

namespace kiln {
namespace {

constexpr const char* kMiddle = "layers.1";

ModelConfig with_layers(ModelConfig model, int64_t layers, const Recompute& recompute) {
  model.layers = layers;
  model.recompute = recompute;
  return model;
}

// Activations in use when the backward of a block begins: that is when the first op of the block before it
// in the forward order has not run yet.
class ScopeBorders final : public OpObserver {
 public:
  explicit ScopeBorders(RankContext& ctx) : ctx_(ctx) { ctx.add_observer(this); }
  ~ScopeBorders() override { ctx_.remove_observer(this); }
  ScopeBorders(const ScopeBorders&) = delete;
  ScopeBorders& operator=(const ScopeBorders&) = delete;

  void on_op_begin(RankContext& ctx, const OpEvent& event) override {
    if (event.pass == Pass::forward) cost_ = cost_ + event.cost;
    if (event.pass != Pass::backward) return;
    const std::string block(event.scope.substr(0, event.scope.find('.', 7)));  // "layers.N"
    // Outputs of this call are allocated already: subtract what is new of them at the end instead.
    if (block != last_) at_[block] = ctx.allocator().stats().live[Tag::activation];
    last_ = block;
  }
  std::size_t freed_between(const std::string& block, const std::string& next) const {
    const auto a = at_.find(block), b = at_.find(next);
    return a == at_.end() || b == at_.end() || a->second < b->second ? 0 : a->second - b->second;
  }
  double flops() const { return cost_.flops; }

 private:
  RankContext& ctx_;
  std::string last_;
  std::map<std::string, std::size_t> at_;
  Cost cost_;
};

struct StackRun {
  std::size_t kept = 0;  // activations after forward
  std::size_t freed = 0;
  std::size_t gradients = 0;
  double flops = 0;
  ResidualLedger ledger;
};

StackRun run_stack(const BlockRequest& request, const RankOptions& rank, int64_t layers,
                   const Recompute& recompute, bool backward) {
  RankContext ctx(rank);
  const std::unique_ptr<Model> made = make_model(with_layers(request.model, layers, recompute));
  Model& model = *made;
  model.params().materialize(ctx, {.precision = request.precision, .narrow_grads = true});
  const Shape shape{request.batch, request.context};
  const Tensor ids = ctx.zeros(shape, DType::i32, Tag::data);
  ResidualWatch watch(ctx);
  ScopeBorders borders(ctx);
  const OnExit forget([&ctx] { ctx.tape().reset(); });
  const std::size_t before = ctx.allocator().stats().live[Tag::activation];
  Tensor loss = model.loss(ctx, ids, ids);
  StackRun run;
  run.kept = ctx.allocator().stats().live[Tag::activation] - before;
  run.flops = borders.flops();
  if (layers > 1) run.ledger = watch.take(kMiddle);
  for (const Param& p : model.params().params()) {
    if (p.name.find(cat(kMiddle, ".")) != std::string::npos) run.gradients += p.grad.bytes().value;
  }
  if (backward) {
    Tensor grad = ctx.zeros(loss.shape(), loss.dtype());
    ctx.tape().backward(std::move(loss), std::move(grad));
    run.freed = borders.freed_between(kMiddle, "layers.0");
    ctx.synchronize();
  }
  return run;
}

// Two stacks that differ in one block.
BlockMemory one_block(const BlockRequest& request, const RankOptions& rank) {
  const StackRun three = run_stack(request, rank, 3, Recompute::none, true),
                 two = run_stack(request, rank, 2, Recompute::none, false);
  return {three.kept - two.kept, three.freed};
}

}  // namespace

int64_t block_params(const ModelConfig& c) {
  const int64_t q = c.heads * c.head_dim(), kv = c.kv_heads * c.head_dim();
  return 2 * c.d_model + c.d_model * (q + 2 * kv) + q * c.d_model + 3 * c.d_model * c.d_ff;
}

std::size_t block_kept(const BlockRequest& request, const Recompute& recompute) {
  RankOptions meta = request.rank;
  meta.device = Device::meta(request.rank.device.target);
  meta.backend = {};
  meta.rank = 0;
  meta.world = 1;
  return run_stack(request, meta, 3, recompute, false).kept -
         run_stack(request, meta, 2, recompute, false).kept;
}

BlockResiduals block_residuals(const BlockRequest& request) {
  RankOptions meta = request.rank;
  meta.device = Device::meta(request.rank.device.target);
  meta.backend = {};
  BlockResiduals r;
  StackRun three = run_stack(request, meta, 3, Recompute::none, true);
  r.ledger = std::move(three.ledger);
  r.flops = three.flops;
  r.gradients = three.gradients;
  const PrecisionPolicy policy = policy_of(request.precision, true);
  r.gradients_expected = static_cast<std::size_t>(block_params(request.model)) * size_of(policy.grad);
  r.predicted = one_block(request, meta);
  const DType stream = policy.value;  // where weights are cast at use, what passes between blocks is not
  r.stream =
      static_cast<std::size_t>(request.batch * request.context * request.model.d_model) * size_of(stream);
  // A stack of one block less one block: the embedding, the last norm and the loss.
  const std::size_t ends = run_stack(request, meta, 2, Recompute::none, false).kept - 2 * r.predicted.kept;
  const auto half = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(request.model.layers))));
  std::vector<Recompute> kinds = {Recompute::none, Recompute::block};
  for (const int64_t k : {int64_t{2}, half}) {
    if (k > 1 && k <= request.model.layers && kinds.back() != Recompute::every(k))
      kinds.push_back(Recompute::every(k));
  }
  kinds.push_back(Recompute::nested);
  for (const Recompute& kind : kinds) {
    const std::size_t kept = run_stack(request, meta, request.model.layers, kind, false).kept;
    r.stack.push_back({kind, kept - std::min(ends, kept)});
  }
  if (request.measure && !request.rank.device.is_meta()) r.measured = one_block(request, request.rank);
  return r;
}

}  // namespace kiln
