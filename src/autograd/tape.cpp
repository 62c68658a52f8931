#include "autograd/tape.h"

#include <algorithm>

#include "autograd/accumulate.h"
#include "autograd/remake.h"

namespace kiln {

void run_split_backward(BackwardPass& pass);

Tensor Tape::watch(const Tensor& t) {
  if (!nodes_.empty() && !replaying()) {
    throw Error("watch() was called after ops were recorded",
                "watch every leaf before the first op of the step");
  }
  Tensor leaf = t.detach();
  leaf.set_value({static_cast<int32_t>(values_.size()), generation_});
  Value v;
  v.shape = t.shape();
  v.dtype = t.dtype();
  values_.push_back(std::move(v));
  return leaf;
}

Tensor Tape::grad(const Tensor& leaf) const {
  const int32_t i = value_index(leaf);
  if (i < 0) throw Error("no gradient is kept for this tensor", "watch() it before the first op of the step");
  return values_[i].grad;
}

void Tape::record(Node&& node, std::initializer_list<Tensor*> outputs) {
  node.scope = ScopeGuard::current(ctx_);
  node.first_output = static_cast<int32_t>(values_.size());
  node.outputs = static_cast<int>(outputs.size());
  for (Tensor* t : outputs) {
    t->set_value({static_cast<int32_t>(values_.size()), generation_});
    Value v;
    v.shape = t->shape();
    v.dtype = t->dtype();
    values_.push_back(std::move(v));
  }
  nodes_.push_back(std::move(node));
}

void Tape::give_grad(const Tensor& output, Tensor grad) {
  const int32_t start = value_index(output);
  if (start < 0) {
    throw Error("backward from a tensor that depends on nothing that wants a gradient",
                "was it computed in an earlier step, or inside a no-grad scope?");
  }
  adopt_grad(start, std::move(grad));
}

void Tape::backward(Tensor output, Tensor grad, int floor) {
  const PhaseGuard phase(ctx_, Phase::backward);
  give_grad(output, std::move(grad));
  output = {};  // kept no longer than the nodes that need it
  while (size() > floor) {
    Node node = std::move(nodes_.back());
    nodes_.pop_back();
    SmallVector<Tensor, 4> grads;
    bool reached = false;
    for (int i = 0; i < node.outputs; ++i) {
      Value& v = values_[node.first_output + i];
      reached |= v.touched;
      grads.push_back(v.touched ? std::move(v.grad) : Tensor());
    }
    if (!reached) {  // the loss does not depend on this node: its parameters get nothing from it
      values_.resize(node.first_output);
      for (const ParamRef& p : node.params) param_grad_done(*p.param);
      if (node.span) {
        for (Param* p : node.span->uses) param_grad_done(*p);
      }
      continue;
    }
    const RunningOpGuard running(ctx_, {node.op, node.variant});
    for (int i = 0; i < node.outputs; ++i) {
      const Value& v = values_[node.first_output + i];
      if (!grads[i].defined() && node.backward != run_split_backward) grads[i] = ctx_.zeros(v.shape, v.dtype);
    }
    values_.resize(node.first_output);
    ScopeGuard scope(ctx_, ScopeGuard::FullPath{node.scope});
    make_again(ctx_, node);
    BackwardPass pass(ctx_, node, std::move(grads));
    node.backward(pass);
    pass.add_repeated();
  }
}

GradSlot Tape::grad_slot(int32_t index) {
  Value& v = values_[index];
  if (v.split_node >= 0) {  // part of a packed tensor: its gradient is a column range of the packed gradient
    Node& node = nodes_[v.split_node];
    if (!node.joint.defined()) {
      const Value& packed = values_[node.inputs[0]];
      node.joint = ctx_.empty(packed.shape, packed.dtype);
    }
    if (!v.grad.defined()) v.grad = node.joint.narrow(-1, v.column, v.shape.last());
  } else if (!v.grad.defined()) {
    v.grad = ctx_.empty(v.shape, v.dtype);
  } else if (!v.grad.buffer().unique()) {
    v.grad = ctx_.clone(v.grad);  // the shared one still has a reader
  }
  const bool accumulate = v.touched;
  v.touched = true;
  return {v.grad, accumulate};
}

void Tape::adopt_grad(int32_t index, Tensor grad) {
  Value& v = values_[index];
  if (grad.shape() != v.shape || grad.dtype() != v.dtype) {
    throw Error(cat("a gradient of ", grad.shape().str(), " ", name_of(grad.dtype()),
                    " was given to a value of ", v.shape.str(), " ", name_of(v.dtype)));
  }
  if (v.touched || v.split_node >= 0) {
    accumulate_grad(ctx_, grad_slot(index), grad);
    return;
  }
  grad.set_value({});
  v.grad = std::move(grad);
  v.touched = true;
}

void Tape::reset() {
  nodes_.clear();
  values_.clear();
  recording_spans_.clear();
  players_.clear();
  replay_depth_ = 0;
  mode_ = GradMode::record;
  ++generation_;
}

const void* Tape::next_pinned_row(const char* op) {
  if (players_.empty()) return nullptr;
  Player& p = players_.back();
  const char* hint = "what it does must not depend on mutable state";
  if (p.next == p.rows->size()) throw Error("a recomputed span runs more ops than it did in forward", hint);
  const RecomputeSpan::Row& row = (*p.rows)[p.next++];
  if (std::strcmp(row.op, op) != 0) {
    throw Error(cat("a recomputed span runs ", op, " where it ran ", row.op, " in forward"), hint);
  }
  return row.variant;
}

void Tape::note_row(const char* op, const void* row) {
  for (RecomputeSpan* span : recording_spans_) span->rows.push_back({op, row});
}

void Tape::note_uses(std::initializer_list<ParamRef> params) {
  for (RecomputeSpan* span : recording_spans_) {
    for (const ParamRef& p : params) span->uses.push_back(p.param);
  }
}

const Tensor& BackwardPass::saved(const char* name) const {
  for (const NamedTensor& s : node_.saved) {
    if (std::strcmp(s.name, name) == 0) return s.tensor;
  }
  throw Error(cat("[", node_.op, "] variant ", node_.variant, " did not save '", name, "'"));
}

GradSlot BackwardPass::grad_in(int input) {
  if (!wants(input)) return {};
  Tape& tape = ctx_.tape();
  const int32_t value = node_.inputs[input];
  if (std::find(opened_.begin(), opened_.end(), value) == opened_.end()) {
    opened_.push_back(value);
    return tape.grad_slot(value);
  }
  Tensor own = ctx_.empty(tape.values_[value].shape, tape.values_[value].dtype);
  repeated_.push_back({value, own});
  return {std::move(own), false};
}

void BackwardPass::add_repeated() {
  for (Repeated& r : repeated_) ctx_.tape().adopt_grad(r.value, std::move(r.grad));
}

void BackwardPass::adopt_grad(int input, Tensor grad) {
  if (wants(input)) ctx_.tape().adopt_grad(node_.inputs[input], std::move(grad));
}

}  // namespace kiln
