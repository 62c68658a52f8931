#include "autograd/remake.h"

#include <algorithm>

#include "base/on_exit.h"

namespace kiln {

Tensor Later::get(RankContext& ctx) const { return from_ ? view_.on(from_->buffer(ctx, buffer_)) : view_; }

const Buffer& Remake::buffer(RankContext& ctx, int index) {
  if (made_.empty()) run(ctx);
  return made_[static_cast<std::size_t>(index)];
}

Buffer Remake::made_at(const Place& place, const Tensors& outputs, std::span<const Node> nodes) const {
  if (place.node < 0) return outputs[place.index].buffer();
  const auto node = static_cast<std::size_t>(place.node);
  if (node >= nodes.size() || place.index >= nodes[node].saved.size())
    throw Error("a piece that backward makes again recorded fewer nodes than in forward",
                "what it does must not depend on mutable state");
  return nodes[node].saved[place.index].tensor.buffer();
}

// On the end of the tape, whose new nodes are only looked at: the first run's are there and stay.
void Remake::run(RankContext& ctx) {
  Tape& tape = ctx.tape();
  std::vector<Tensor> inputs;
  for (const Later& input : inputs_) inputs.push_back(input.get(ctx));
  inputs_.clear();  // what only this needed is freed with `inputs`

  const auto floor = tape.nodes_.size(), first_value = tape.values_.size();
  ++tape.replay_depth_;
  if (pinned_) tape.players_.push_back({&first_.rows});
  const OnExit leave([&] {
    --tape.replay_depth_;
    if (pinned_) tape.players_.pop_back();
  });
  const PhaseGuard phase(ctx, Phase::recompute);
  const ScopeGuard scope(ctx, ScopeGuard::FullPath{scope_});
  const GradModeGuard mode(ctx, GradMode::record);
  for (Tensor& input : inputs) input = tape.watch(input);
  const Tensors outputs = run_(inputs);
  if (pinned_ && tape.players_.back().next != first_.rows.size())
    throw Error("a piece that backward makes again ran fewer ops than in forward",
                "what it does must not depend on mutable state");
  const std::span<const Node> nodes(tape.nodes_.begin() + static_cast<std::ptrdiff_t>(floor),
                                    tape.nodes_.end());
  for (const Place& place : places_) made_.push_back(made_at(place, outputs, nodes));
  tape.nodes_.erase(tape.nodes_.begin() + static_cast<std::ptrdiff_t>(floor), tape.nodes_.end());
  tape.values_.resize(first_value);
  run_ = {};
}

Rematerializer::Rematerializer(RankContext& ctx)
    : ctx_(ctx),
      active_(ctx.tape().mode() == GradMode::record && !ctx.tape().replaying()),
      begin_(ctx.tape().nodes_.size()) {}

const Rematerializer::Known* Rematerializer::find(const Tensor& t) const {
  const auto known =
      std::find_if(known_.begin(), known_.end(), [&t](const Known& k) { return k.buffer == t.buffer(); });
  return known == known_.end() ? nullptr : &*known;
}

void Rematerializer::add(const Tensor& t, const std::shared_ptr<Remake>& from, Remake::Place place) {
  if (!t.defined() || find(t) != nullptr) return;
  known_.push_back({t.buffer(), from, static_cast<int>(from->places_.size())});
  from->places_.push_back(place);
}

Tensors Rematerializer::piece(std::span<const Tensor> inputs, const PieceRun& run) {
  if (!active_) return run(inputs);
  Tape& tape = ctx_.tape();
  const auto made = std::make_shared<Remake>();
  made->pinned_ = true;
  made->run_ = run;
  made->scope_ = ScopeGuard::current(ctx_);
  for (const Tensor& input : inputs) made->inputs_.push_back(later(input));
  const std::size_t first = tape.nodes_.size();
  Tensors outputs;
  {
    tape.recording_spans_.push_back(&made->first_);
    const OnExit leave([&tape] { tape.recording_spans_.pop_back(); });
    outputs = run(inputs);
  }
  for (int i = 0; i < outputs.size(); ++i) add(outputs[i], made, {-1, i});
  const auto is_input = [&](const Tensor& t) {
    return std::any_of(inputs.begin(), inputs.end(),
                       [&t](const Tensor& input) { return input.buffer() == t.buffer(); });
  };
  for (std::size_t n = first; n < tape.nodes_.size(); ++n) {
    const auto& saved = tape.nodes_[n].saved;
    for (int i = 0; i < saved.size(); ++i) {
      if (!is_input(saved[i].tensor)) add(saved[i].tensor, made, {static_cast<int>(n - first), i});
    }
  }
  return outputs;
}

void Rematerializer::remake(std::span<const Tensor> made, std::vector<Later> inputs, PieceRun run) {
  if (!active_) return;
  const auto remake = std::make_shared<Remake>();
  remake->inputs_ = std::move(inputs);
  remake->run_ = std::move(run);
  remake->scope_ = ScopeGuard::current(ctx_);
  int index = 0;
  for (const Tensor& t : made) add(t, remake, {-1, index++});
}

Later Rematerializer::later(const Tensor& t) const {
  const Known* known = active_ ? find(t) : nullptr;
  return known == nullptr ? Later(t.detach()) : Later(t, known->from, known->index);
}

void Rematerializer::give_up() {
  std::vector<Node>& nodes = ctx_.tape().nodes_;
  for (std::size_t n = begin_; active_ && n < nodes.size(); ++n) {
    for (int i = 0; i < nodes[n].saved.size(); ++i) {
      Tensor& saved = nodes[n].saved[i].tensor;
      const Known* known = saved.defined() ? find(saved) : nullptr;
      if (known == nullptr) continue;
      nodes[n].given_up.push_back({i, known->index, known->from});
      saved = saved.without_buffer();
    }
  }
  known_.clear();  // their memory may soon be another's
}

void make_again(RankContext& ctx, Node& node) {
  for (GivenUp& g : node.given_up) {
    Tensor& saved = node.saved[g.saved].tensor;
    saved = saved.on(g.from->buffer(ctx, g.buffer));
  }
  node.given_up.clear();  // the node holds what it needs; the rest is held by those that still will
}

}  // namespace kiln
