#include "studies/gate/step_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "autograd/cast_values.h"
#include "autograd/tape.h"
#include "base/plain_number.h"
#include "model/model.h"
#include "ops/add_rms_norm/add_rms_norm.h"
#include "ops/cases/bench_case.h"
#include "ops/cases/run_case.h"
#include "ops/cast/cast.h"
#include "ops/linear/linear.h"
#include "ops/rope/sampled_rope.h"
#include "studies/gate/update_cases.h"

namespace kiln {
namespace {

using K = CaseInput::Kind;

// The forward and backward passes of a model's blocks, embedding and loss, shape by shape.
class ModelCases {
 public:
  ModelCases(const StepSpec& spec, std::vector<StepCase>& cases)
      : c_(spec.model),
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

  const ModelConfig c_;
  const int64_t B_, T_;
  const PrecisionPolicy policy_;
  const bool backward_;
  std::vector<StepCase>& cases_;
};

}  // namespace

std::vector<StepCase> cases_of_step(const StepSpec& spec, const RankOptions& rank) {
  std::vector<StepCase> cases;
  ModelCases(spec, cases).add_all();
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
