#include "train/memory_prediction.h"

#include <algorithm>

#include "autograd/tape.h"
#include "base/error.h"
#include "dist/comm/local_transport.h"
#include "dist/launch/parallel_rank.h"
#include "model/weight_source.h"
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

MemoryStats predict_memory(const MemoryRequest& request, const RankOptions& rank) {
  RankOptions options = rank;
  options.device = Device::meta(rank.device.target);
  options.backend = {};
  RankContext ctx(options);
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
  const std::vector<HostBatch> batches(static_cast<std::size_t>(shape.micro_steps));
  // Twice: the second step finds what the first left behind.
  for (int i = 0; i < 2; ++i) step.run(batches, 0);
  step.finish();
  if (request.evaluates) plan_evaluation(ctx, model, shape.batch, shape.context);
  const MemoryStats stats = ctx.allocator().stats();
  ctx.tape().reset();
  return stats;
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

void check_fits(const MemoryRequest& request, const RankOptions& rank, const MemoryStats& predicted,
                std::size_t free_memory) {
  if (predicted.peak_total <= free_memory) return;
  const int64_t batch = request.step.batch;
  const int64_t fits = largest_batch(batch, free_memory, [&](int64_t smaller) {
    MemoryRequest r = request;
    r.step.batch = smaller;
    return predict_memory(r, rank).peak_total;
  });
  const std::string others = "--precision bf16, --recompute block, a smaller --ctx or --size";
  const int64_t ranks = rank.world / request.layout.tensor_ranks;  // that share the batch out
  throw Error(
      cat("this run needs ", human({predicted.peak_total}), " of memory",
          rank.world > 1 ? " on each rank" : "", "; ", human({free_memory}), " are free on ",
          rank.device.str(), rank.world > 1 ? " for each" : "", "; peaks: ", needed_by_tag(predicted)),
      fits > 0 ? cat("the largest --batch that fits is ", fits * ranks, " (", batch * ranks,
                     " was requested; --grad-accum makes up for it); or ", others)
               : cat("no --batch fits: take ", others));
}

}  // namespace kiln
