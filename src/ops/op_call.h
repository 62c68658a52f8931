// One call of an op, from selection to the tape: what every op's public function is written with. On `meta`
// all of it happens except the kernel itself.
#pragma once

#include <cstring>
#include <optional>

#include "autograd/tape.h"
#include "ops/select.h"

namespace kiln {

void announce(RankContext& ctx, const OpEvent& event, bool begin);

// Runs `work` between the watchers' begin and end; with no watchers it is just the call.
template <class CostFn, class Work>
void watched(RankContext& ctx, const char* op, const char* variant, Pass pass, CostFn cost,
             std::initializer_list<NamedTensor> outputs, Work work) {
  if (ctx.observers().empty()) {
    work();
    return;
  }
  const OpEvent event{
      op, variant, ctx.scope(), pass, ctx.tape().replaying(), cost(), {outputs.begin(), outputs.size()}};
  announce(ctx, event, true);
  work();
  announce(ctx, event, false);
}

template <class Op>
class OpCall {
 public:
  using Problem = typename Op::Problem;

  OpCall(RankContext& ctx, const Problem& problem, std::string_view wanted = {})
      : ctx_(ctx),
        problem_(problem),
        named_(!wanted_variant<Op>(ctx, wanted).empty()),
        row_(select<Op>(ctx, problem, wanted)),
        running_(ctx, {Op::kName, row_.name}) {}

  const Variant<Op>& row() const { return row_; }
  bool composed() const { return row_.composed; }  // then the op calls its parts instead of run()

  // An extra tensor the row declares, or an undefined one if this row does not save it.
  Tensor extra(const char* name, std::source_location where = std::source_location::current()) const {
    for (const auto& s : row_.saves) {
      if (s.from == SavedFrom::extra && std::strcmp(s.name, name) == 0)
        return ctx_.empty(s.shape(problem_), s.dtype(problem_), Tag::activation, where);
    }
    return {};
  }

  Tensor workspace(std::source_location where = std::source_location::current()) const {
    return workspace_for(ctx_, row_, problem_, Pass::forward, where);
  }

  void run(const typename Op::Forward& arguments, std::initializer_list<NamedTensor> outputs) const {
    watched(
        ctx_, Op::kName, row_.name, Pass::forward, [&] { return row_.cost(problem_, Pass::forward); },
        outputs,
        [&] {
          if (!ctx_.device().is_meta()) row_.forward(ctx_, arguments);
        });
  }

  // Makes the call a node of the tape if anything it depends on wants a gradient. `candidates` are the
  // tensors the op can save; the row's declaration picks among them by name.
  void record(std::initializer_list<const Tensor*> inputs, std::initializer_list<ParamRef> params,
              std::initializer_list<Tensor*> outputs, std::initializer_list<NamedTensor> candidates) const {
    Tape& tape = ctx_.tape();
    if (tape.mode() != GradMode::record) {
      tape.note_uses(params);
      return;
    }
    Node node;
    bool wanted = false;
    for (const Tensor* t : inputs) {
      node.inputs.push_back(tape.value_index(*t));
      wanted |= node.inputs[node.inputs.size() - 1] >= 0;
    }
    for (const ParamRef& p : params) {
      node.params.push_back(p);
      wanted |= p.param->trainable;
    }
    if (!wanted) return;
    for (const auto& s : row_.saves) {
      const NamedTensor* found = nullptr;
      for (const NamedTensor& c : candidates) {
        if (std::strcmp(c.name, s.name) == 0) found = &c;
      }
      if (found == nullptr || found->tensor.shape() != s.shape(problem_) ||
          found->tensor.dtype() != s.dtype(problem_)) {
        throw Error(
            cat("[", Op::kName, "] variant ", row_.name, " declares that it saves '", s.name, "' as ",
                s.shape(problem_).str(), " ", name_of(s.dtype(problem_)), " but the call gave ",
                found ? cat(found->tensor.shape().str(), " ", name_of(found->tensor.dtype())) : "nothing"));
      }
      node.saved.push_back({s.name, found->tensor.detach()});
    }
    node.op = Op::kName;
    node.variant = row_.name;
    node.row = &row_;
    node.named = named_;
    node.backward = &Op::run_backward;
    static_assert(sizeof(Problem) <= Node::kProblemBytes && std::is_trivially_copyable_v<Problem>);
    std::memcpy(node.problem, &problem_, sizeof problem_);
    tape.record(std::move(node), outputs);
  }

  static Tensor workspace_for(RankContext& ctx, const Variant<Op>& row, const Problem& problem, Pass pass,
                              std::source_location where) {
    const std::size_t bytes = row.workspace ? row.workspace(problem, pass) : 0;
    return bytes == 0 ? Tensor() : ctx.empty({static_cast<int64_t>(bytes)}, DType::u8, Tag::workspace, where);
  }

 private:
  RankContext& ctx_;
  Problem problem_;
  bool named_;  // the variant was requested
  const Variant<Op>& row_;
  RunningOpGuard running_;
};

// The same for backward, with the row that forward took, or, where the pass's own tensors have a say, with
// the one that `choose` finds.
template <class Op>
class BackwardCall {
 public:
  explicit BackwardCall(BackwardPass& pass)
      : ctx_(pass.ctx()),
        problem_(pass.problem<typename Op::Problem>()),
        row_(static_cast<const Variant<Op>*>(pass.node().row)),
        named_(pass.node().named) {}

  const typename Op::Problem& problem() const { return problem_; }
  // Before the workspace, since each row has its own. `problem`: with the alignment of what backward reads
  // and writes.
  void choose(const typename Op::Problem& problem) {
    problem_ = problem;
    row_ = &select_backward<Op>(ctx_, problem_, *row_, named_);
    running_.emplace(ctx_, RunningOp{Op::kName, row_->name});
  }
  Tensor workspace(std::source_location where = std::source_location::current()) const {
    return OpCall<Op>::workspace_for(ctx_, *row_, problem_, Pass::backward, where);
  }

  void run(const typename Op::Backward& arguments, std::initializer_list<NamedTensor> outputs) const {
    watched(
        ctx_, Op::kName, row_->name, Pass::backward, [&] { return row_->cost(problem_, Pass::backward); },
        outputs,
        [&] {
          if (!ctx_.device().is_meta()) row_->backward(ctx_, arguments);
        });
  }

 private:
  RankContext& ctx_;
  typename Op::Problem problem_;
  const Variant<Op>* row_;
  bool named_;
  std::optional<RunningOpGuard> running_;
};

}  // namespace kiln
