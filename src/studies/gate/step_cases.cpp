#include "studies/gate/step_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "autograd/cast_values.h"
#include "autograd/tape.h"
#include "base/plain_number.h"
#include "model/model.h"
#include "model/regions.h"
#include "ops/add_rms_norm/add_rms_norm.h"
#include "ops/attention/attention.h"
#include "ops/cases/bench_case.h"
#include "ops/cases/run_case.h"
#include "ops/cast/cast.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/linear/linear.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rope/sampled_rope.h"
#include "ops/swiglu/swiglu.h"
#include "studies/gate/update_cases.h"

namespace kiln {
namespace {

using K = CaseInput::Kind;

// The forward and backward passes of a model's blocks, embedding and loss, shape by shape.
class ModelCases {
 public:
  ModelCases(const StepSpec& spec, const RankOptions& rank, std::vector<StepCase>& cases)
      : device_(rank.device),
        c_(spec.model),
        B_(spec.step.batch),
        T_(spec.step.context),
        policy_(policy_of(spec.precision, layout_for(spec.precision, spec.step).narrow_grads)),
        backward_(spec.mode != StepMode::forward),
        cases_(cases) {}

  void add_all() {
    const int64_t C = c_.d_model, F = c_.d_ff, Q = c_.heads * c_.head_dim(), KV = c_.kv_heads * c_.head_dim();
    const DType stream = policy_.value;
    bench("embedding", {{"rows", rows()}, {"vocab", c_.vocab}, {"cols", C}}, stream);
    for (const char* op : {"rms_norm", "add_rms_norm", "add"})
      bench(op, {{"rows", rows()}, {"cols", C}}, stream);
    if (policy_.casts_at_use()) add_casts();
    if (c_.compile != CompileMode::none && why_not_compiled(device_).empty()) add_regions();
    if (c_.fused_qkv) linear(C, Q + 2 * KV);
    if (!c_.fused_qkv) linear(C, Q), linear(C, KV);
    linear(Q, C);
    if (c_.fused_gate_up) linear(C, 2 * F);
    if (!c_.fused_gate_up) linear(C, F);
    linear(F, C);
    add_attention();
    const BenchShape mlp{{"rows", rows()}, {"cols", F}};
    if (c_.fused_gate_up) packed("swiglu", mlp, 2);
    if (!c_.fused_gate_up) bench("swiglu", mlp, policy_.compute);
    if (c_.fused_linear_ce)
      return bench("linear_cross_entropy", {{"rows", rows()}, {"in", C}, {"vocab", c_.vocab}},
                   policy_.compute);
    linear(C, c_.vocab);
    bench("cross_entropy", {{"rows", rows()}, {"vocab", c_.vocab}}, policy_.compute);
  }

 private:
  int64_t rows() const { return B_ * T_; }

  void add(const std::string& name, DType dtype, std::function<SampledCase(const Sampling&)> make) {
    cases_.push_back({fmt::format("{} in {}", name, name_of(dtype)), dtype,
                      [make = std::move(make), backward = backward_, grad = policy_.grad](const Sampling& s) {
                        SampledCase c = make(s);
                        c.backward = c.backward && backward;
                        c.param_grad = grad;
                        return c;
                      }});
  }

  void bench(const char* op, const BenchShape& shape, DType dtype) {
    add(cat(op, " ", shape.str()), dtype,
        [b = find_op_bench(op), shape](const Sampling& s) { return b.sampled(shape, s); });
  }
  // On the columns of one packed tensor.
  void packed(const char* op, const BenchShape& shape, int inputs) {
    add(cat(op, " ", shape.str(), ",packed"), policy_.compute,
        [b = find_op_bench(op), shape, inputs](const Sampling& s) {
          return pack_inputs(b.sampled(shape, s), 0, inputs);
        });
  }
  void linear(int64_t in, int64_t out) {
    bench("linear", {{"rows", rows()}, {"in", in}, {"out", out}}, policy_.compute);
  }

  // Activations on their way into a block and out of it; weights at use.
  void add_casts() {
    const int64_t C = c_.d_model, F = c_.d_ff, Q = c_.heads * c_.head_dim(), KV = c_.kv_heads * c_.head_dim();
    const DType wide = policy_.value, narrow = policy_.compute;
    cast_between(rows(), C, wide, narrow, true);
    cast_between(rows(), C, narrow, wide, true);
    std::vector<std::pair<int64_t, int64_t>> weights = {
        {Q + 2 * KV, C}, {C, Q}, {2 * F, C}, {C, F}, {c_.vocab, C}};
    if (!c_.fused_qkv) weights.insert(weights.end(), {{Q, C}, {KV, C}});
    if (!c_.fused_gate_up) weights.push_back({F, C});
    for (const auto& [out, in] : weights) cast_between(out, in, wide, narrow, false);
  }
  void cast_between(int64_t n, int64_t cols, DType from, DType to, bool of_the_tape) {
    const auto make = [=](int64_t some) {
      return OpCase{"cast",
                    fmt::format("{}x{}", some, cols),
                    {{"x", K::activation, {some, cols}}},
                    [=](RankContext& ctx, std::span<const CaseArgument> in) -> CaseOutputs {
                      const Tensor& x = in[0].tensor;
                      if (x.dtype() == DType::f64) return add_nothing(ctx, x);
                      return of_the_tape ? kiln::cast(ctx, x, to) : cast_values(ctx, x, to, Tag::workspace);
                    }};
    };
    add(fmt::format("cast {}x{} to {}", n, cols, name_of(to)), from, [=](const Sampling& s) {
      SampledCase c = sample_rows(make, n, static_cast<double>(cols), s);
      c.backward = of_the_tape;
      c.dy_dtype = to;
      return c;
    });
  }
  // Exact numbers are not rounded, and have a gradient all the same.
  static Tensor add_nothing(RankContext& ctx, const Tensor& x) { return kiln::cast(ctx, x, DType::f64); }

  void add_attention() {
    const BenchShape turned{
        {"batch", B_}, {"seq", T_}, {"heads", c_.heads}, {"kv_heads", c_.kv_heads}, {"dim", c_.head_dim()}};
    const BenchShape shape{
        {"batch", B_},          {"seq", T_}, {"kv_seq", 0}, {"heads", c_.heads}, {"kv_heads", c_.kv_heads},
        {"dim", c_.head_dim()}, {"full", 0}};
    if (!c_.fused_qkv) {
      bench("attention", shape, policy_.compute);
    } else {
      packed("attention", shape, 3);
    }
    const bool pack = c_.fused_qkv;
    const RopeOptions options{.heads = c_.heads,
                              .kv_heads = c_.kv_heads,
                              .theta = c_.rope_theta,
                              .scaling = c_.rope_scaling,
                              .length = T_,
                              .in_place = true};
    add(cat("rope ", turned.str()), policy_.compute, [turned, options, pack](const Sampling& s) {
      SampledCase c = sampled_rope(turned, options, s);
      return pack ? pack_inputs(std::move(c), 0, 2) : c;
    });
  }

  // The regions of a compiled model, each beside the ops that it is recorded from: those run in fp64.
  using Call = std::function<CaseOutputs(RankContext&, std::span<const CaseArgument>)>;
  void region(const char* op, const BenchShape& shape, DType dtype, int packed, const Call& ops,
              const Call& made) {
    add(cat("compiled ", op, " ", shape.str(), packed > 0 ? ",packed" : ""), dtype,
        [b = find_op_bench(op), shape, packed, ops, made](const Sampling& s) {
          SampledCase c = b.sampled(shape, s);
          c.whole.call = [ops, made](RankContext& ctx, std::span<const CaseArgument> in) {
            return in[0].tensor.dtype() == DType::f64 ? ops(ctx, in) : made(ctx, in);
          };
          return packed > 0 ? pack_inputs(std::move(c), 0, packed) : c;
        });
  }

  void add_regions() {
    const DType stream = policy_.value, narrow = policy_.compute;
    const float eps = c_.norm_eps;
    const BenchShape norm{{"rows", rows()}, {"cols", c_.d_model}}, mlp{{"rows", rows()}, {"cols", c_.d_ff}};
    region(
        "rms_norm", norm, stream, 0,
        [eps](RankContext& ctx, auto in) {
          return CaseOutputs{rms_norm(ctx, in[0].tensor, *in[1].param, eps)};
        },
        [eps](RankContext& ctx, auto in) {
          return CaseOutputs{compiled(ctx, norm_region(eps), {{in[0].tensor}, {*in[1].param}})[0]};
        });
    region(
        "add_rms_norm", norm, stream, 0,
        [eps](RankContext& ctx, auto in) {
          const AddRmsNormResult r = add_rms_norm(ctx, in[0].tensor, in[1].tensor, *in[2].param, eps);
          return CaseOutputs{r.sum, r.normed};
        },
        [eps](RankContext& ctx, auto in) {
          const Tensors y =
              compiled(ctx, sum_norm_region(eps), {{in[0].tensor, in[1].tensor}, {*in[2].param}});
          return CaseOutputs{y[0], y[1]};
        });
    region(
        "swiglu", mlp, narrow, c_.fused_gate_up ? 2 : 0,
        [](RankContext& ctx, auto in) { return CaseOutputs{swiglu(ctx, in[0].tensor, in[1].tensor)}; },
        [](RankContext& ctx, auto in) {
          return CaseOutputs{compiled(ctx, swiglu_region(), {{in[0].tensor, in[1].tensor}, {}})[0]};
        });
    const RopeOptions turned{
        .heads = c_.heads, .kv_heads = c_.kv_heads, .theta = c_.rope_theta, .scaling = c_.rope_scaling};
    region(
        "rope",
        {{"batch", B_}, {"seq", T_}, {"heads", c_.heads}, {"kv_heads", c_.kv_heads}, {"dim", c_.head_dim()}},
        narrow, c_.fused_qkv ? 2 : 0,
        [turned](RankContext& ctx, auto in) {
          const RopeResult r = rope(ctx, in[0].tensor, in[1].tensor, turned);
          return CaseOutputs{r.q, r.k};
        },
        [turned](RankContext& ctx, auto in) {
          const Tensors y = compiled(ctx, rope_region(turned), {{in[0].tensor, in[1].tensor}, {}});
          return CaseOutputs{y[0], y[1]};
        });
    if (c_.compile == CompileMode::model) add_model_regions();
  }

  void add_model_regions() {
    const DType narrow = policy_.compute;
    const BenchShape shape{
        {"batch", B_},          {"seq", T_}, {"kv_seq", 0}, {"heads", c_.heads}, {"kv_heads", c_.kv_heads},
        {"dim", c_.head_dim()}, {"full", 0}};
    const auto attend = [c = c_](const char* variant) {
      return [c, variant](RankContext& ctx, auto in) {
        const AttentionOptions o{
            .heads = c.heads, .kv_heads = c.kv_heads, .causal = true, .variant = variant};
        return CaseOutputs{attention(ctx, in[0].tensor, in[1].tensor, in[2].tensor, o)};
      };
    };
    region("attention", shape, narrow, c_.fused_qkv ? 3 : 0, attend(""), attend("compiled"));
    linear(c_.d_model, c_.vocab);
    region(
        "cross_entropy", {{"rows", rows()}, {"vocab", c_.vocab}}, narrow, 0,
        [](RankContext& ctx, auto in) { return CaseOutputs{cross_entropy(ctx, in[0].tensor, in[1].tensor)}; },
        [](RankContext& ctx, auto in) {
          return CaseOutputs{compiled(ctx, loss_region(), {{in[0].tensor, in[1].tensor}, {}})[0]};
        });
  }

  const Device device_;
  const ModelConfig c_;
  const int64_t B_, T_;
  const PrecisionPolicy policy_;
  const bool backward_;
  std::vector<StepCase>& cases_;
};

}  // namespace

std::vector<StepCase> cases_of_step(const StepSpec& spec, const RankOptions& rank) {
  std::vector<StepCase> cases;
  ModelCases(spec, rank, cases).add_all();
  if (spec.mode == StepMode::full) add_update_cases(spec, rank, cases);
  std::set<std::string> names;  // a square matrix is that of two projections
  std::erase_if(cases, [&](const StepCase& c) { return !names.insert(c.name).second; });
  return cases;
}

std::string call_of(const TimedOp& op) {
  return fmt::format("{} {} {} {} {}", op.op, op.variant, op.pass == Pass::forward ? "f" : "b",
                     plain(op.cost.flops, 17), plain(op.cost.bytes, 17));
}

std::vector<TimedOp> calls_of_case(const StepCase& c, const RankOptions& rank) {
  RankOptions options = rank;
  options.device = Device::meta(rank.device.target);
  options.backend = {};
  RankContext ctx(options);
  const SampledCase one = c.make({.seed = 0, .work = 0, .most = 3});
  CaseData nothing;
  nothing.inputs.resize(one.whole.inputs.size());
  const OpTimes ops(ctx);
  {
    CaseSetup setup(ctx, one.whole, nothing, c.dtype, {}, one.param_grad);
    const GradModeGuard mode(ctx, one.backward ? GradMode::record : GradMode::off);
    const CaseOutputs y = one.whole.call(ctx, setup.arguments());
    if (one.backward) setup.backward(y, setup.upload_gradients(y, {}));
  }
  return ops.take();
}

std::vector<std::string> uncovered_ops(const std::vector<TimedOp>& planned,
                                       const std::vector<StepCase>& cases, const RankOptions& rank) {
  std::set<std::string> covered;
  for (const StepCase& c : cases) {
    for (const TimedOp& op : calls_of_case(c, rank)) covered.insert(call_of(op));
  }
  std::vector<std::string> missing;
  for (const TimedOp& op : planned) {
    if (covered.count(call_of(op)) != 0) continue;
    const std::string name =
        fmt::format("{} {} {}", op.op, op.variant, op.pass == Pass::forward ? "forward" : "backward");
    if (std::find(missing.begin(), missing.end(), name) == missing.end()) missing.push_back(name);
  }
  return missing;
}

}  // namespace kiln
