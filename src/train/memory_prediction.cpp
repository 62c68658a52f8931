#include "train/memory_prediction.h"

#include <algorithm>
#include <optional>

#include "autograd/tape.h"
#include "base/error.h"
#include "dist/comm/local_transport.h"
#include "dist/launch/parallel_rank.h"
#include "model/weight_source.h"
#include "train/checkpoint/save_sources.h"
#include "train/run/evaluate.h"

namespace kiln {
namespace {

bool has(const std::string& name, std::string_view part) { return name.find(part) != std::string::npos; }

}  // namespace

ParamGroups count_params(const ModelConfig& config) {
  ParamGroups groups;
  for (const WeightSpec& w : weight_specs(config)) {
    int64_t& group = has(w.name, "embed_tokens") ? groups.embedding
                     : has(w.name, "self_attn.") ? groups.attention
                     : has(w.name, ".mlp.")      ? groups.mlp
                     : has(w.name, "norm")       ? groups.norms
                                                 : groups.head;
    group += w.shape.numel();
  }
  return groups;
}

namespace {

StepPrediction run_on_meta(const MemoryRequest& request, const RankOptions& rank, bool with_ops,
                           MemoryRecord* record = nullptr) {
  RankOptions options = rank;
  options.device = Device::meta(rank.device.target);
  options.backend = {};
  RankContext ctx(options);
  std::optional<MemoryTrace> trace;
  if (record != nullptr) trace.emplace(ctx);
  // Micro-steps after the second allocate as the second does; where gradients are summed during the next
  // micro-step, those after the third as the third.
  StepOptions shape = request.step;
  shape.micro_steps = std::min(shape.micro_steps, request.strategy == "none" ? 2 : 3);

  Communicator comm(ctx, make_meta_transport(rank.rank, rank.world, request.comm));
  ParallelRank place(ctx, comm, request.layout.tensor_ranks, request.strategy, request.sharing);
  const std::unique_ptr<Model> made = make_model(request.model, place.partition());
  Model& model = *made;
  model.params().materialize(ctx, request.layout);
  place.strategy().attach(model.params());
  TrainStep step(ctx, model, place.strategy(), shape);
  Tensor copy;
  if (request.saves_copy && rank.device.target == DeviceType::cpu)
    copy = ctx.empty({staged_elements(model.params(), step.optimizer())}, DType::f32, Tag::data);
  const std::vector<HostBatch> batches(static_cast<std::size_t>(shape.micro_steps));
  StepPrediction prediction;
  prediction.micro_steps = shape.micro_steps;
  // Twice: the second step finds what the first left behind.
  step.run(batches, 0);
  {
    std::optional<OpTimes> ops;
    if (with_ops) ops.emplace(ctx);
    step.run(batches, 0);
    if (ops) prediction.ops = ops->take();
  }
  step.finish();
  if (request.evaluates) plan_evaluation(ctx, model, shape.batch, shape.context);
  prediction.memory = ctx.allocator().stats();
  if (record != nullptr) *record = trace->take();
  ctx.tape().reset();
  return prediction;
}

}  // namespace

MemoryStats predict_memory(const MemoryRequest& request, const RankOptions& rank) {
  return run_on_meta(request, rank, false).memory;
}

MemoryRecord predict_allocations(const MemoryRequest& request, const RankOptions& rank) {
  MemoryRecord record;
  run_on_meta(request, rank, false, &record);
  return record;
}

StepPrediction predict_step(const MemoryRequest& request, const RankOptions& rank) {
  return run_on_meta(request, rank, true);
}

std::string needed_by_tag(const MemoryStats& predicted) {
  std::string tags;
  for (int t = 0; t < kTagCount; ++t) {
    const Tag tag = static_cast<Tag>(t);
    if (predicted.peak[tag] != 0)
      tags += cat(tags.empty() ? "" : ", ", name_of(tag), " ", human({predicted.peak[tag]}));
  }
  return tags;
}

int64_t largest_batch(int64_t asked, std::size_t free_memory,
                      const std::function<std::size_t(int64_t)>& peak_of) {
  int64_t fits = 0, too_much = asked;
  while (too_much - fits > 1) {
    const int64_t between = fits + (too_much - fits) / 2;
    (peak_of(between) <= free_memory ? fits : too_much) = between;
  }
  return fits;
}

}  // namespace kiln
