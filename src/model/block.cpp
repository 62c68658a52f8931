#include "model/block.h"

#include <cmath>
#include <tuple>

#include "autograd/tape.h"
#include "ops/add/add.h"
#include "ops/add_rms_norm/add_rms_norm.h"
#include "ops/attention/attention.h"
#include "ops/cast/cast.h"
#include "ops/linear/linear.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rope/rope.h"
#include "ops/swiglu/swiglu.h"

namespace kiln {
namespace {

constexpr ParamInit kOnes{ParamInit::Kind::ones, 0, 0};

// Of the whole weight: a part of it starts with the values it has there.
ParamInit linear_init(int64_t in, int64_t out) {
  return {ParamInit::Kind::normal, static_cast<float>(std::sqrt(2.0 / static_cast<double>(in + out))), 3};
}

// [out, in] of which the columns `here` are here.
Param& add_row_part(ParamStore& params, std::string name, int64_t out, int64_t in, ShardRange here) {
  return params.add(std::move(name), {out, here.count}, linear_init(in, out), true,
                    {ParamRole::row, {}, here.begin, in});
}

}  // namespace

Block::Block(ParamStore& params, const ModelConfig& c, int64_t index, const Partition& partition)
    : config_(c),
      partition_(partition),
      index_(index),
      scope_(cat("layers.", index)),
      heads_(partition.of(c.heads).count),
      kv_heads_(partition.of(c.kv_heads).count),
      hidden_(partition.of(c.d_ff).count) {
  const std::string prefix = cat("model.layers.", index, ".");
  const int64_t C = c.d_model, F = c.d_ff, Q = c.heads * c.head_dim(), KV = c.kv_heads * c.head_dim();
  const ShardRange q = partition.of(Q), kv = partition.of(KV), f = partition.of(F);
  auto attention = [&](const char* name) { return cat(prefix, "self_attn.", name, ".weight"); };
  auto mlp = [&](const char* name) { return cat(prefix, "mlp.", name, ".weight"); };

  attention_norm_ = &params.add(cat(prefix, "input_layernorm.weight"), {C}, kOnes, false);
  qkv_ = &params.add_packed(attention("qkv_proj"),
                            {{attention("q_proj"), 0, q.count, linear_init(C, Q)},
                             {attention("k_proj"), q.count, kv.count, linear_init(C, KV)},
                             {attention("v_proj"), q.count + kv.count, kv.count, linear_init(C, KV)}},
                            C, true, {ParamRole::column, {{q.begin, Q}, {kv.begin, KV}, {kv.begin, KV}}});
  out_ = &add_row_part(params, attention("o_proj"), C, Q, q);
  mlp_norm_ = &params.add(cat(prefix, "post_attention_layernorm.weight"), {C}, kOnes, false);
  gate_up_ = &params.add_packed(mlp("gate_up_proj"),
                                {{mlp("gate_proj"), 0, f.count, linear_init(C, F)},
                                 {mlp("up_proj"), f.count, f.count, linear_init(C, F)}},
                                C, true, {ParamRole::column, {{f.begin, F}, {f.begin, F}}});
  down_ = &add_row_part(params, mlp("down_proj"), C, F, f);
}

Tensor Residual::whole(RankContext& ctx) const { return last.defined() ? add(ctx, sum, last) : sum; }

NormedResidual norm_of(RankContext& ctx, const Residual& x, Param& weight, float eps) {
  if (!x.last.defined()) return {x.sum, rms_norm(ctx, x.sum, weight, eps)};
  const AddRmsNormResult r = add_rms_norm(ctx, x.sum, x.last, weight, eps);
  return {r.sum, r.normed};
}

Residual Block::forward(RankContext& ctx, const Residual& x, KvCache* cache) const {
  ScopeGuard scope(ctx, scope_);
  if (config_.recompute == Recompute::nested && cache == nullptr)
    return {forward_in_halves(ctx, x.whole(ctx))};
  const float eps = config_.norm_eps;
  Residual middle;  // [B, T, C], like all that passes between the halves
  {
    ScopeGuard attention(ctx, "attention");
    const NormedResidual h = norm_of(ctx, x, *attention_norm_, eps);
    middle = {h.sum, attend(ctx, h.normed, cache)};
  }
  ScopeGuard half(ctx, "mlp");
  const NormedResidual h = norm_of(ctx, middle, *mlp_norm_, eps);
  middle = {};  // only the sum is needed from here on
  return {h.sum, mlp(ctx, h.normed)};
}

// Each half by itself, so that either can be recomputed from its one input: the sum ends the first half, the
// norm begins the second, and add_rms_norm would cross the border.
Tensor Block::forward_in_halves(RankContext& ctx, const Tensor& x) const {
  const float eps = config_.norm_eps;
  const Tensor h = recompute(ctx, x, [&ctx, this, eps](const Tensor& t) {
    ScopeGuard half(ctx, "attention");
    return add(ctx, t, attend(ctx, rms_norm(ctx, t, *attention_norm_, eps)));
  });
  return recompute(ctx, h, [&ctx, this, eps](const Tensor& t) {
    ScopeGuard half(ctx, "mlp");
    return add(ctx, t, mlp(ctx, rms_norm(ctx, t, *mlp_norm_, eps)));
  });
}

Tensor Block::attend(RankContext& ctx, const Tensor& x, KvCache* cache) const {
  const ModelConfig& c = config_;
  const int64_t Q = heads_ * c.head_dim(), KV = kv_heads_ * c.head_dim();
  const AttentionOptions options{.heads = heads_, .kv_heads = kv_heads_, .causal = true};
  const Tensor normed = partition_.enter_shards(ctx, cast_for(ctx, x, *qkv_));
  Tensor q, k, v;  // [B, T, H D], [B, T, Hkv D]
  if (c.fused_qkv) {
    const auto qkv = split(ctx, linear(ctx, normed, *qkv_), {Q, KV, KV});
    q = qkv[0], k = qkv[1], v = qkv[2];
  } else {
    q = linear(ctx, normed, ParamRef::view(*qkv_, 0));
    k = linear(ctx, normed, ParamRef::view(*qkv_, 1));
    v = linear(ctx, normed, ParamRef::view(*qkv_, 2));
  }
  // In place: nothing else reads the unturned q and k.
  const RopeResult turned = rope(ctx, q, k,
                                 {.heads = heads_,
                                  .kv_heads = kv_heads_,
                                  .theta = c.rope_theta,
                                  .offset = cache ? cache->length() : 0,
                                  .in_place = true});
  q = turned.q, k = turned.k;
  if (cache) std::tie(k, v) = cache->extend(ctx, index_, k, v);  // [B, all tokens so far, Hkv D]
  const Tensor o = attention(ctx, q, k, v, options);             // [B, T, H D]
  return cast(ctx, partition_.leave_shards(ctx, linear(ctx, o, *out_)), x.dtype());
}

Tensor Block::mlp(RankContext& ctx, const Tensor& x) const {
  const ModelConfig& c = config_;
  const Tensor normed = partition_.enter_shards(ctx, cast_for(ctx, x, *gate_up_));
  Tensor a;  // [B, T, F]
  if (c.fused_gate_up) {
    const auto gate_up = split(ctx, linear(ctx, normed, *gate_up_), {hidden_, hidden_});
    a = swiglu(ctx, gate_up[0], gate_up[1]);
  } else {
    const Tensor gate = linear(ctx, normed, ParamRef::view(*gate_up_, 0));
    const Tensor up = linear(ctx, normed, ParamRef::view(*gate_up_, 1));
    a = swiglu(ctx, gate, up);
  }
  return cast(ctx, partition_.leave_shards(ctx, linear(ctx, a, *down_)), x.dtype());
}

}  // namespace kiln
