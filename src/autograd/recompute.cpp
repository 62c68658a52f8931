// Activation recomputation: forward keeps a span's input and nothing inside it; backward runs the span again
// on the end of the same tape and goes through it at once. The second run takes the variants the first one
// took.
#include "autograd/tape.h"
#include "base/on_exit.h"

namespace kiln {

// With the rows of the first run. They are the span's, which dies with its node: the tape forgets them on
// every way out.
Tensor run_again(RankContext& ctx, const RecomputeSpan& span, const Tensor& input) {
  Tape& tape = ctx.tape();
  tape.players_.push_back({&span.rows});
  const OnExit leave([&tape] { tape.players_.pop_back(); });
  const PhaseGuard phase(ctx, Phase::recompute);
  GradModeGuard mode(ctx, GradMode::record);
  Tensor output = span.run(input);
  if (tape.players_.back().next != span.rows.size()) {
    throw Error("a recomputed span ran fewer ops than in forward",
                "what it does must not depend on mutable state");
  }
  return output;
}

void run_recompute_backward(BackwardPass& pass) {
  RankContext& ctx = pass.ctx_;
  Tape& tape = ctx.tape();
  Node& node = pass.node_;
  const bool input_wanted = pass.wants(0);
  Tensor input = node.saved[0].tensor;
  node.saved = {};

  const int floor = tape.size();
  const auto first_value = tape.values_.size();
  Tensor grad;
  {
    ++tape.replay_depth_;
    const OnExit leave([&tape] { --tape.replay_depth_; });
    // The span's input must be a value even when its gradient is not needed, so that the span records itself
    // the way it would have; its gradient is then dropped.
    const Tensor leaf = tape.watch(input);
    input = {};
    tape.backward(run_again(ctx, *node.span, leaf), std::move(pass.grads_[0]), floor);
    grad = tape.grad(leaf);
  }
  tape.values_.resize(first_value);
  if (input_wanted && grad.defined()) pass.adopt_grad(0, std::move(grad));
}

Tensor recompute(RankContext& ctx, const Tensor& x, std::function<Tensor(const Tensor&)> f) {
  Tape& tape = ctx.tape();
  if (tape.mode() != GradMode::record) return f(x);  // already inside a span's first run, or evaluating

  auto span = std::make_shared<RecomputeSpan>();
  Tensor y;
  {
    GradModeGuard mode(ctx, GradMode::deferred);
    tape.recording_spans_.push_back(span.get());
    const OnExit leave([&tape] { tape.recording_spans_.pop_back(); });
    y = f(x.detach()).detach();
  }
  span->run = std::move(f);
  Node node;
  node.op = "recompute";
  node.variant = "span";
  node.backward = run_recompute_backward;
  node.inputs.push_back(tape.value_index(x));
  node.saved.push_back({"input", x.detach()});
  node.span = std::move(span);
  tape.record(std::move(node), {&y});
  return y;
}

}  // namespace kiln
