#include "autograd/accumulate.h"
#include "autograd/tape.h"

namespace kiln {

void run_split_backward(BackwardPass& pass) {
  Node& node = pass.node_;
  int64_t column = 0;
  const int64_t* sizes = reinterpret_cast<const int64_t*>(node.problem);
  for (int i = 0; i < node.outputs; ++i) {
    if (!pass.grads_[i].defined()) {  // a part the loss does not depend on
      Tensor part = node.joint.narrow(-1, column, sizes[i]);
      accumulate_grad(pass.ctx_, {part, false}, pass.ctx_.zeros(part.shape(), part.dtype()));
    }
    column += sizes[i];
  }
  for (int i = 0; i < node.outputs; ++i)
    pass.grads_[i] = {};  // so that the joint buffer is unshared when passed on
  Tensor joint = std::move(node.joint);
  pass.adopt_grad(0, std::move(joint));
}

SmallVector<Tensor, 4> split(RankContext& ctx, const Tensor& x, std::initializer_list<int64_t> sizes) {
  int64_t total = 0;
  for (int64_t s : sizes) total += s;
  if (total != x.shape().last() || sizes.size() > 4) {
    throw Error(cat("[split] parts add up to ", total, ", last axis of x is ", x.shape().last()));
  }
  SmallVector<Tensor, 4> parts;
  int64_t column = 0;
  for (int64_t s : sizes) {
    parts.push_back(x.narrow(-1, column, s));
    column += s;
  }
  Tape& tape = ctx.tape();
  if (tape.mode() != GradMode::record || !tape.needs_grad(x)) return parts;

  Node node;
  node.op = "split";
  node.variant = "view";
  node.backward = run_split_backward;
  node.inputs.push_back(tape.value_index(x));
  int i = 0;
  for (int64_t s : sizes) reinterpret_cast<int64_t*>(node.problem)[i++] = s;
  const auto at = static_cast<int32_t>(tape.nodes_.size());
  tape.record(std::move(node), {});
  Node& recorded = tape.nodes_.back();
  column = 0;
  for (Tensor& part : parts) {
    part.set_value({static_cast<int32_t>(tape.values_.size()), tape.generation_});
    Tape::Value v;
    v.shape = part.shape();
    v.dtype = part.dtype();
    v.split_node = at;
    v.column = column;
    column += part.shape().last();
    tape.values_.push_back(std::move(v));
    ++recorded.outputs;
  }
  return parts;
}

}  // namespace kiln
