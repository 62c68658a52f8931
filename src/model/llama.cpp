#include "model/llama.h"

#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "model/regions.h"
#include "ops/cast/cast.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/linear/linear.h"
#include "ops/rms_norm/rms_norm.h"

namespace kiln {

Llama::Llama(const ModelConfig& config, const Partition& partition) : Model(config, partition) {
  check_config(config_);
  if (config_.recompute.kind == Recompute::Kind::budget)
    throw Error(cat("--recompute is '", name_of(config_.recompute), "', and no policy was chosen within it"));
  check_shards(config_, partition.shard_count());
  const int64_t V = config_.vocab, C = config_.d_model;
  const ShardRange here = partition.of_vocab(V);
  const auto add_vocab = [&](const char* name, float std) {
    return &params_.add(name, {here.count, C}, {ParamInit::Kind::normal, std, 3}, true,
                        {ParamRole::vocab, {{here.begin, V}}});
  };
  // A tied weight is also the head, where a standard deviation of 1 would blow up the logits.
  embedding_ = add_vocab("model.embed_tokens.weight", config_.tied ? 0.02f : 1.0f);
  for (int64_t i = 0; i < config_.layers; ++i) blocks_.emplace_back(params_, config_, i, partition);
  norm_ = &params_.add("model.norm.weight", {C}, {ParamInit::Kind::ones, 0, 0}, false);
  const float head_std = static_cast<float>(std::sqrt(2.0 / static_cast<double>(C + V)));
  head_ = config_.tied ? embedding_ : add_vocab("lm_head.weight", head_std);
}

Tensor Llama::embed(RankContext& ctx, const Tensor& tokens) const {
  ScopeGuard scope(ctx, "embed_tokens");
  return partition_.embed(ctx, tokens, *embedding_, config_.vocab);
}

Residual Llama::hidden(RankContext& ctx, const Tensor& tokens) const {
  return blocks(ctx, {embed(ctx, tokens)}, 0, config_.layers);
}

Tensor Llama::final_norm(RankContext& ctx, const Residual& x) const {
  return cast_for(ctx, norm_of(ctx, x, *norm_, config_).normed, *head_);
}

Tensor Llama::logits(RankContext& ctx, const Tensor& tokens) const {
  const Residual x = hidden(ctx, tokens);
  ScopeGuard scope(ctx, "head");
  return partition_.logits(ctx, final_norm(ctx, x), *head_);
}

Tensor Llama::loss(RankContext& ctx, const Tensor& tokens, const Tensor& targets) const {
  const bool compiles_loss = config_.compile == CompileMode::model && compiles(ctx, config_);
  const bool whole_logits = !config_.fused_linear_ce ||
                            (compiles_loss && ctx.variants().find("linear_cross_entropy") == "composed");
  if (whole_logits && partition_.shard_count() == 1) {
    const Tensor out = logits(ctx, tokens);
    ScopeGuard scope(ctx, "loss");
    return compiles_loss ? compiled(ctx, loss_region(), {{out, targets}, {}})[0]
                         : cross_entropy(ctx, out, targets);
  }
  const Residual x = hidden(ctx, tokens);
  ScopeGuard scope(ctx, "loss");
  return partition_.loss(ctx, final_norm(ctx, x), *head_, config_.vocab, targets);
}

Tensor Llama::decode(RankContext& ctx, const Tensor& tokens, KvCache& cache) const {
  if (partition_.shard_count() > 1)
    throw Error(
        cat("a model in ", partition_.shard_count(), " shards does not generate: no rank has all logits"),
        "take one rank's model whole: --tp 1");
  const GradModeGuard off(ctx, GradMode::off);
  cache.check_room(tokens.shape());
  const int64_t T = tokens.dim(1);
  Residual x{embed(ctx, tokens)};  // [B, T, C]
  for (const Block& block : blocks_) x = block.forward(ctx, x, &cache);
  cache.advance(T);
  ScopeGuard scope(ctx, "head");
  // [B, 1, C]: no other token is asked what follows it
  const Residual last{x.sum.narrow(1, T - 1, 1), x.last.narrow(1, T - 1, 1)};
  return linear(ctx, final_norm(ctx, last), *head_).reshape({tokens.dim(0), config_.vocab});
}

Residual Llama::blocks(RankContext& ctx, const Residual& x, int64_t begin, int64_t end) const {
  const auto run = [&ctx, this](Residual h, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) h = blocks_[i].forward(ctx, h);
    return h;
  };
  const Recompute& keep = config_.recompute;
  // A plan is each block's own matter: it makes pieces again, and no span.
  if (keep.kind == Recompute::Kind::none || keep.kind == Recompute::Kind::plan) return run(x, begin, end);
  Tensor h = x.whole(ctx);  // what is recomputed starts from one tensor and ends in one
  if (keep.kind == Recompute::Kind::every) {
    for (int64_t i = begin; i < end; i += keep.k) {
      const int64_t last = std::min(i + keep.k, end);
      h = recompute(ctx, h, [&ctx, run, i, last](const Tensor& t) { return run({t}, i, last).whole(ctx); });
    }
    return {h};
  }
  // Nested: memory for log2(layers) inputs at the cost of log2(layers) forwards.
  return {recompute(ctx, h, [&ctx, this, begin, end](const Tensor& t) {
    if (end - begin == 1) return blocks_[begin].forward(ctx, {t}).whole(ctx);
    const int64_t middle = (begin + end) / 2;
    return blocks(ctx, blocks(ctx, {t}, begin, middle), middle, end).whole(ctx);
  })};
}

}  // namespace kiln
