#include "model/block.h"

#include <cmath>
#include <cstring>
#include <tuple>

#include "model/regions.h"
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

bool compiles(RankContext& ctx, const ModelConfig& config) {
  if (config.compile == CompileMode::automatic) return why_not_compiled(ctx.device()).empty();
  return config.compile != CompileMode::none;
}

namespace {

std::string_view variant_of_last(RankContext& ctx, const char* op) {
  const std::vector<Node>& nodes = ctx.tape().nodes();
  return !nodes.empty() && std::strcmp(nodes.back().op, op) == 0 ? nodes.back().variant : "";
}

}  // namespace

namespace {

NormedResidual compiled_norm(RankContext& ctx, const Residual& x, Param& weight, float eps) {
  if (!x.last.defined()) return {x.sum, compiled(ctx, norm_region(eps), {{x.sum}, {weight}})[0]};
  const Tensors made = compiled(ctx, sum_norm_region(eps), {{x.sum, x.last}, {weight}});
  return {made[0], made[1]};
}

}  // namespace

NormedResidual norm_of(RankContext& ctx, const Residual& x, Param& weight, const ModelConfig& config) {
  const float eps = config.norm_eps;
  if (compiles(ctx, config)) return compiled_norm(ctx, x, weight, eps);
  if (!x.last.defined()) {
    Tensor normed = rms_norm(ctx, x.sum, weight, eps);
    return {x.sum, std::move(normed), variant_of_last(ctx, "rms_norm")};
  }
  AddRmsNormResult r = add_rms_norm(ctx, x.sum, x.last, weight, eps);
  return {std::move(r.sum), std::move(r.normed), variant_of_last(ctx, "add_rms_norm")};
}

Residual Block::forward(RankContext& ctx, const Residual& x, KvCache* cache) const {
  ScopeGuard scope(ctx, scope_);
  if (config_.recompute == Recompute::nested && cache == nullptr)
    return {forward_in_halves(ctx, x.whole(ctx))};
  Again again{Rematerializer(ctx), config_.recompute.again_in(index_)};
  Residual middle;  // [B, T, C], like all that passes between the halves
  {
    ScopeGuard attention(ctx, "attention");
    const NormedResidual h = norm_of(ctx, x, *attention_norm_, config_);
    middle = {h.sum, attend(ctx, h, again, cache)};
    again.tensors.give_up();
  }
  ScopeGuard half(ctx, "mlp");
  const NormedResidual h = norm_of(ctx, middle, *mlp_norm_, config_);
  again_out(ctx, middle.sum, h.sum, again);
  middle = {};  // only the sum is needed from here on
  Tensor last = mlp(ctx, h, again);
  again.tensors.give_up();
  return {h.sum, std::move(last)};
}

// Each half by itself, so that either can be recomputed from its one input: the sum ends the first half, the
// norm begins the second, and add_rms_norm would cross the border.
Tensor Block::forward_in_halves(RankContext& ctx, const Tensor& x) const {
  const Tensor h = recompute(ctx, x, [&ctx, this](const Tensor& t) {
    ScopeGuard half(ctx, "attention");
    Again none{Rematerializer(ctx), {}};
    return Residual{t, attend(ctx, norm_of(ctx, {t}, *attention_norm_, config_), none)}.whole(ctx);
  });
  return recompute(ctx, h, [&ctx, this](const Tensor& t) {
    ScopeGuard half(ctx, "mlp");
    Again none{Rematerializer(ctx), {}};
    return Residual{t, mlp(ctx, norm_of(ctx, {t}, *mlp_norm_, config_), none)}.whole(ctx);
  });
}

// Before a matmul that is cut by columns, and after one that is cut by rows.
Tensor Block::enter(RankContext& ctx, const Tensor& normed, const Param& weight) const {
  return partition_.enter_shards(ctx, cast_for(ctx, normed, weight));
}

Tensor Block::leave(RankContext& ctx, const Tensor& x, Param& weight, DType stream) const {
  return cast(ctx, partition_.leave_shards(ctx, linear(ctx, x, weight)), stream);
}

// From the sum, which the norm saves: whatever added it up, the norm of it as it is stored is the same.
void Block::again_norm(RankContext& ctx, const NormedResidual& x, const Tensor& entered, Param& norm,
                       const Param& weight, Again& again) const {
  const std::span<const Tensor> made(&entered, 1);
  again.tensors.remake(made, {again.tensors.later(x.sum)},
                       [&ctx, this, &norm, &weight, variant = x.variant](std::span<const Tensor> in) {
                         const Tensor y = compiles(ctx, config_)
                                              ? norm_of(ctx, {in[0]}, norm, config_).normed
                                              : rms_norm(ctx, in[0], norm, config_.norm_eps, variant);
                         return Tensors{enter(ctx, y, weight)};
                       });
}

// The sum between the halves, from the block's input and attention's output.
void Block::again_out(RankContext& ctx, const Tensor& before, const Tensor& sum, Again& again) const {
  if (!again.has(Piece::out)) return;
  again.tensors.remake({&sum, 1}, {again.tensors.later(before), again.attended},
                       [&ctx, this](std::span<const Tensor> in) {
                         return Tensors{Residual{in[0], leave(ctx, in[1], *out_, in[0].dtype())}.whole(ctx)};
                       });
}

Tensors Block::make_qkv(RankContext& ctx, const Tensor& normed, int64_t offset) const {
  const ModelConfig& c = config_;
  const int64_t Q = heads_ * c.head_dim(), KV = kv_heads_ * c.head_dim();
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
  const RopeOptions options{.heads = heads_,
                            .kv_heads = kv_heads_,
                            .theta = c.rope_theta,
                            .offset = offset,
                            .scaling = c.rope_scaling,
                            .in_place = true};
  if (compiles(ctx, c) && offset == 0) {  // a cache's offset is another with every token
    const Tensors turned = compiled(ctx, rope_region(options), {{q, k}, {}});
    return {turned[0], turned[1], v};
  }
  const RopeResult turned = rope(ctx, q, k, options);
  return {turned.q, turned.k, v};
}

Tensors Block::make_gate_up(RankContext& ctx, const Tensor& normed) const {
  if (config_.fused_gate_up) return split(ctx, linear(ctx, normed, *gate_up_), {hidden_, hidden_});
  Tensor gate = linear(ctx, normed, ParamRef::view(*gate_up_, 0));
  Tensor up = linear(ctx, normed, ParamRef::view(*gate_up_, 1));
  return {std::move(gate), std::move(up)};
}

Tensor Block::activate(RankContext& ctx, const Tensor& gate, const Tensor& up) const {
  return compiles(ctx, config_) ? compiled(ctx, swiglu_region(), {{gate, up}, {}})[0] : swiglu(ctx, gate, up);
}

Tensor Block::attend(RankContext& ctx, const NormedResidual& x, Again& again, KvCache* cache) const {
  AttentionOptions options{.heads = heads_, .kv_heads = kv_heads_, .causal = true};
  if (config_.compile == CompileMode::model && ctx.variants().find("attention") == "composed")
    options.variant = "compiled";  // the softmax between its two matmuls
  const Tensor normed = enter(ctx, x.normed, *qkv_);
  if (again.has(Piece::attention_norm)) again_norm(ctx, x, normed, *attention_norm_, *qkv_, again);
  const int64_t offset = cache ? cache->length() : 0;
  Tensors qkv = again.run(Piece::qkv, {normed}, [&ctx, this, offset](std::span<const Tensor> in) {
    return make_qkv(ctx, in[0], offset);
  });
  if (cache)  // [B, all tokens so far, Hkv D]
    std::tie(qkv[1], qkv[2]) = cache->extend(ctx, index_, qkv[1], qkv[2]);
  const Tensor o = again.run(Piece::attention, {qkv[0], qkv[1], qkv[2]},  // [B, T, H D]
                             [&ctx, options](std::span<const Tensor> in) {
                               return Tensors{attention(ctx, in[0], in[1], in[2], options)};
                             })[0];
  if (again.has(Piece::out)) again.attended = again.tensors.later(o);
  return leave(ctx, o, *out_, x.sum.dtype());
}

Tensor Block::mlp(RankContext& ctx, const NormedResidual& x, Again& again) const {
  const Tensor normed = enter(ctx, x.normed, *gate_up_);
  if (again.has(Piece::mlp_norm)) again_norm(ctx, x, normed, *mlp_norm_, *gate_up_, again);
  Tensor a;  // [B, T, F]
  {
    const Tensors gate_up = again.run(Piece::gate_up, {normed}, [&ctx, this](std::span<const Tensor> in) {
      return make_gate_up(ctx, in[0]);
    });
    a = again.run(Piece::swiglu, {gate_up[0], gate_up[1]}, [&ctx, this](std::span<const Tensor> in) {
      return Tensors{activate(ctx, in[0], in[1])};
    })[0];
  }
  return leave(ctx, a, *down_, x.sum.dtype());
}

}  // namespace kiln
