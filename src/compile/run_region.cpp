#include "compile/run_region.h"

#include <algorithm>
#include <optional>

#include "compile/cpu/run.h"
#include "ops/op_call.h"

namespace kiln::compile {
namespace {

// What backward finds in its node.
struct RegionProblem {
  const CompiledRegion* region;
  const RegionPlan* plan;
};

Memory memory_of(const Tensor& t, const Value& v) {
  Memory m{t.raw(), 1, t.dtype()};
  const bool column = t.shape().rank() > 1 && t.shape().last() == 1;  // [R, 1], not [R]
  if (v.period > 0 || (v.extent.rows && (v.extent.width > 1 || column))) m.row = t.row_stride();
  return m;
}

// A pass of a program: its memory is set, its scratch allocated, and it runs.
class ProgramRun {
 public:
  ProgramRun(RankContext& ctx, const Program& p, DType computes)
      : ctx_(ctx), p_(p), computes_(computes), memory_(p.graph.values.size()) {}

  void input(int index, const Tensor& t) {
    const int v = p_.graph.inputs[static_cast<std::size_t>(index)];
    set(v, memory_of(t, p_.graph[v]));
  }
  void output(int v, const Tensor& t, bool add = false, bool aliased = false) {
    Memory m = memory_of(t, p_.graph[v]);
    m.add = add;
    m.aliased = aliased;
    set(v, m);
  }

  void run() {
    std::vector<Tensor> between;
    for (const int v : p_.between) {
      const Value& x = p_.graph[v];
      const DType stored = x.prim == Prim::round ? x.dtype : computes_;
      between.push_back(ctx_.empty({x.extent.rows ? p_.rows : 1, x.extent.width}, stored, Tag::workspace));
      set(v, memory_of(between.back(), x));
    }
    std::size_t most = 0;
    for (const Kernel& k : p_.kernels) most = std::max(most, partial_bytes(p_, k, computes_));
    Tensor partials;
    if (most > 0) partials = ctx_.empty({static_cast<int64_t>(most)}, DType::u8, Tag::workspace);
    if (!ctx_.device().is_meta()) run_on_cpu(ctx_, p_, computes_, memory_, partials);
  }

 private:
  void set(int v, const Memory& m) { memory_[static_cast<std::size_t>(v)] = m; }

  RankContext& ctx_;
  const Program& p_;
  DType computes_;
  std::vector<Memory> memory_;
};

Cost cost_of(const Program& p) { return {p.flops(), p.bytes()}; }

void watched_pass(RankContext& ctx, const char* region, Pass pass, const Program& p,
                  std::span<const NamedTensor> outputs, ProgramRun& run) {
  const OpEvent event{"compiled", region, ctx.scope(), pass, ctx.tape().replaying(), cost_of(p), outputs};
  if (!ctx.observers().empty()) announce(ctx, event, true);
  run.run();
  if (!ctx.observers().empty()) announce(ctx, event, false);
}

constexpr const char* kOutputs[] = {"y0", "y1", "y2", "y3"};
constexpr const char* kGrads[] = {"dx0", "dx1", "dx2", "dx3", "dw0", "dw1"};

bool keeps_tensor(const RegionPlan* plan, int index) {
  if (plan == nullptr) return false;
  return std::any_of(plan->kept.begin(), plan->kept.end(), [&](const KeptTensor& k) {
    return k.from == KeptTensor::From::tensor && k.index == index;
  });
}

class ForwardRun {
 public:
  ForwardRun(RankContext& ctx, const CompiledRegion& region, const RegionPlan* plan, const RegionInputs& in)
      : ctx_(ctx),
        region_(region),
        plan_(plan),
        in_(in),
        program_(plan ? plan->forward : region.forward),
        run_(ctx, program_, region.traced.computes) {
    for (int i = 0; i < in.params.size(); ++i) uses_[i].emplace(in.params[i], ctx.tape().counts_uses());
  }

  Tensors run(int in_place) {
    int index = 0;
    for (const Tensor& t : in_.tensors) run_.input(index++, t);
    for (int i = 0; i < in_.params.size(); ++i) run_.input(index++, uses_[i]->tensor());
    for (const Tensor& t : region_.tables) run_.input(index++, t);
    allocate(in_place);
    SmallVector<NamedTensor, 4> named;
    for (int i = 0; i < outputs_.size(); ++i) named.push_back({kOutputs[i], outputs_[i]});
    watched_pass(ctx_, region_.name, Pass::forward, program_, named.span(), run_);
    if (plan_ != nullptr) record();
    return outputs_;
  }

 private:
  void allocate(int in_place) {
    const std::vector<int>& values = program_.graph.outputs;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const int v = values[i], number = static_cast<int>(i);
      const Value& x = program_.graph[v];
      if (i >= region_.traced.outputs.size()) {  // kept for backward alone
        extras_.push_back(ctx_.empty(x.extent.rows ? extra_shape(x) : Shape{x.extent.width},
                                     x.prim == Prim::round ? x.dtype : region_.traced.computes));
        run_.output(v, extras_.back());
        continue;
      }
      const auto twin = std::find(values.begin(), values.begin() + number, v);
      if (twin != values.begin() + number) {
        outputs_.push_back(Tensor(outputs_[static_cast<int>(twin - values.begin())]).detach());
        continue;
      }
      const TracedOutput& o = region_.traced.outputs[i];
      if (x.prim == Prim::input) {  // passed on
        outputs_.push_back(in_.tensors[x.index].detach());
        continue;
      }
      const bool here = number < in_place && !keeps_tensor(plan_, number) &&
                        in_.tensors[number].dtype() == o.dtype && in_.tensors[number].shape() == o.shape;
      outputs_.push_back(here ? in_.tensors[number].detach() : ctx_.empty(o.shape, o.dtype));
      run_.output(v, outputs_[number], false, here);
    }
  }
  Shape extra_shape(const Value& x) const {
    return x.extent.width > 1 ? Shape{program_.rows, x.extent.width} : Shape{program_.rows};
  }

  void record() {
    Node node;
    node.op = "compiled";
    node.variant = region_.name;
    node.row = &region_;
    node.backward = &run_backward;
    for (const Tensor& t : in_.tensors) node.inputs.push_back(ctx_.tape().value_index(t));
    for (const ParamRef& p : in_.params) node.params.push_back(p);
    for (const KeptTensor& k : plan_->kept) {
      using From = KeptTensor::From;
      if (k.from == From::tensor && k.index >= in_.tensors.size())
        continue;  // a weight: its strategy keeps it
      const Tensor& t = k.from == From::tensor   ? in_.tensors[k.index]
                        : k.from == From::output ? outputs_[k.index]
                                                 : extras_[static_cast<std::size_t>(k.index)];
      node.saved.push_back({k.name.c_str(), t.shape().rank() > 1 ? t.reshape_rows().detach() : t.detach()});
    }
    const RegionProblem problem{&region_, plan_};
    static_assert(sizeof problem <= Node::kProblemBytes);
    std::memcpy(node.problem, &problem, sizeof problem);
    Tape& tape = ctx_.tape();
    switch (outputs_.size()) {
      case 1:
        return tape.record(std::move(node), {&outputs_[0]});
      case 2:
        return tape.record(std::move(node), {&outputs_[0], &outputs_[1]});
      case 3:
        return tape.record(std::move(node), {&outputs_[0], &outputs_[1], &outputs_[2]});
      default:
        return tape.record(std::move(node), {&outputs_[0], &outputs_[1], &outputs_[2], &outputs_[3]});
    }
  }

  static void run_backward(BackwardPass& pass);

  RankContext& ctx_;
  const CompiledRegion& region_;
  const RegionPlan* plan_;
  const RegionInputs& in_;
  const Program& program_;
  ProgramRun run_;
  std::optional<ParamUse> uses_[2];
  Tensors outputs_;
  std::vector<Tensor> extras_;
};

class BackwardRun {
 public:
  BackwardRun(BackwardPass& pass, const RegionProblem& problem)
      : pass_(pass),
        region_(*problem.region),
        plan_(*problem.plan),
        program_(plan_.backward),
        run_(pass.ctx(), program_, region_.traced.computes) {}

  void run() {
    {
      std::optional<ParamUse> uses[2];
      for (int i = 0; i < params(); ++i) {
        uses[i].emplace(pass_.param(i), false);
        run_.input(tensors() + i, uses[i]->tensor());
      }
      inputs();
      for (int i = 0; i < tensors(); ++i) pass_on(i);  // first: what is passed on must not be written over
      for (int i = 0; i < tensors(); ++i) tensor_grad(i);
      for (int i = 0; i < params(); ++i) weight_grad(i);
      watched_pass(pass_.ctx(), region_.name, Pass::backward, program_, named_.span(), run_);
      for (int i = 0; i < tensors(); ++i) {
        if (passed_on_[i].defined()) pass_.adopt_grad(i, std::move(passed_on_[i]));
      }
    }
    for (int i = 0; i < params(); ++i) param_grad_done(*pass_.param(i).param);
  }

 private:
  int tensors() const { return pass_.node().inputs.size(); }
  int params() const { return pass_.node().params.size(); }
  int grad_value(int i) const { return plan_.grads[static_cast<std::size_t>(i)]; }

  void inputs() {
    int index = tensors() + params();
    for (const Tensor& t : region_.tables) run_.input(index++, t);
    const int outputs = static_cast<int>(region_.traced.outputs.size());
    for (int i = 0; i < outputs; ++i) run_.input(plan_.upstream + i, pass_.grad_out(i));
    int kept_input = plan_.upstream + outputs, at = 0;
    for (const KeptTensor& k : plan_.kept) {
      const bool tensor = k.from == KeptTensor::From::tensor;
      if (tensor && k.index >= tensors()) continue;
      const Tensor& t = pass_.node().saved[at++].tensor;
      run_.input(tensor ? k.index : kept_input++, t);
    }
  }

  // An output's gradient that is an input's.
  void pass_on(int i) {
    const int v = grad_value(i);
    if (v < 0 || !pass_.wants(i) || program_.graph[v].prim != Prim::input) return;
    passed_on_[i] = pass_.grad_out(program_.graph[v].index - plan_.upstream);
  }

  void tensor_grad(int i) {
    const int v = grad_value(i);
    if (v < 0 || !pass_.wants(i) || passed_on_[i].defined()) return;
    for (int j = 0; j < tensors(); ++j) {
      if (j == i || grad_value(j) != v || !pass_.wants(j)) continue;
      if (j < i) {
        passed_on_[i] = passed_on_[j];
      } else {
        make_shared_grad(i, v);
      }
      return;
    }
    const GradSlot slot = pass_.grad_in(i);
    run_.output(v, slot.tensor, slot.accumulate);
    named_.push_back({kGrads[i], slot.tensor});
  }

  // The gradient of several inputs: in the place of an output's gradient that nothing else reads, if there is
  // one.
  void make_shared_grad(int i, int v) {
    const Value& x = program_.graph[v];
    const Tensor& like = first_of_extent(x.extent);
    const bool once = program_.kernels.size() == 1;
    for (int o = 0; once && o < static_cast<int>(region_.traced.outputs.size()); ++o) {
      const Tensor& g = pass_.grad_out(o);
      const Value& up = program_.graph[program_.graph.inputs[static_cast<std::size_t>(plan_.upstream + o)]];
      if (up.extent != x.extent || g.dtype() != pass_dtype(i) || !g.contiguous() || !g.buffer().unique())
        continue;
      passed_on_[i] = g;
      run_.output(v, g, false, true);
      named_.push_back({kGrads[i], g});
      return;
    }
    passed_on_[i] = pass_.ctx().empty(like.shape(), pass_dtype(i));
    run_.output(v, passed_on_[i]);
    named_.push_back({kGrads[i], passed_on_[i]});
  }
  DType pass_dtype(int i) const {
    return region_.traced.graph[region_.traced.graph.inputs[static_cast<std::size_t>(i)]].dtype;
  }
  const Tensor& first_of_extent(Extent e) const {
    for (int o = 0; o < static_cast<int>(region_.traced.outputs.size()); ++o) {
      if (region_.traced.graph[region_.traced.graph.outputs[static_cast<std::size_t>(o)]].extent == e)
        return pass_.grad_out(o);
    }
    throw Error(
        cat("[compile] region ", region_.name, " has inputs of one gradient and no output of their shape"));
  }

  void weight_grad(int i) {
    const int v = grad_value(tensors() + i);
    if (v < 0) return;
    const GradSlot slot = param_grad(pass_.param(i));
    run_.output(v, slot.tensor, slot.accumulate);
    named_.push_back({kGrads[4 + i], slot.tensor});
  }

  BackwardPass& pass_;
  const CompiledRegion& region_;
  const RegionPlan& plan_;
  const Program& program_;
  ProgramRun run_;
  Tensor passed_on_[4];
  SmallVector<NamedTensor, 6> named_;
};

void ForwardRun::run_backward(BackwardPass& pass) { BackwardRun(pass, pass.problem<RegionProblem>()).run(); }

}  // namespace

Tensors run_forward(RankContext& ctx, const CompiledRegion& region, const RegionPlan* plan, int in_place,
                    const RegionInputs& in) {
  return ForwardRun(ctx, region, plan, in).run(in_place);
}

}  // namespace kiln::compile
