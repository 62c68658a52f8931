#include "studies/plan/paper_schedule.h"

#include <algorithm>

#include "perf/comm/zero_theory.h"

namespace kiln {
namespace {

using Kind = ScheduleEvent::Kind;

class Paper {
 public:
  Paper(const PaperModel& model, const PaperStep& step)
      : m_(model),
        q_(step),
        rows_(static_cast<double>(step.tokens)),
        width_(static_cast<double>(model.d_model)),
        hidden_(static_cast<double>(model.d_ff) / step.layout.tensor),
        element_(static_cast<double>(size_of(step.policy.compute))) {
    s_.grad = step.policy.grad;
    int64_t offset = 0;
    for (int64_t i = model.layers - 1; i >= 0; --i) {  // the arena's order is that of backward
      for (const char* name : {"w2", "w1"}) {
        s_.weights.push_back(
            {cat("layers.", i, ".", name), weight(), offset, step.layout.strategy == "fsdp"});
        offset += s_.weights.back().sharded ? weight() / step.layout.data : weight();
      }
    }
  }

  RankSchedule all() {
    for (int i = 0; i < std::min(q_.micro_steps, 3); ++i) micro_step();
    add(Kind::gradients);
    finish();
    add(Kind::updated);
    if (q_.layout.data > 1 && (q_.layout.strategy == "zero1" || q_.layout.strategy == "zero2"))
      for (const ScheduledWeight& w : s_.weights)
        call(Kind::data_call, Collective::all_gather,
             w.padded / q_.layout.data * static_cast<int64_t>(size_of(q_.policy.value)));
    memory();
    return std::move(s_);
  }

 private:
  int64_t weight() const { return m_.d_model * m_.d_ff / q_.layout.tensor; }
  std::size_t w1(int64_t layer) const { return static_cast<std::size_t>(2 * (m_.layers - 1 - layer) + 1); }
  std::size_t w2(int64_t layer) const { return w1(layer) - 1; }

  void add(Kind kind, std::size_t index = 0) { s_.events.push_back({kind, index}); }
  void op(std::string_view name, Pass pass, double flops, double elements, bool again = false) {
    add(Kind::op, s_.ops.size());
    TimedOp t{name, "", pass, again, {flops, elements * element_}};
    t.dtype = q_.policy.compute;
    t.rows = q_.tokens;
    t.columns = m_.d_model;
    s_.ops.push_back(t);
  }
  void use(std::size_t weight, std::string_view phase) {
    add(Kind::use, s_.uses.size());
    s_.uses.push_back({weight, q_.policy.compute, phase});
  }
  void call(Kind kind, Collective what, int64_t bytes) {
    std::vector<GroupCall>& calls = kind == Kind::tensor_call ? s_.tensor_calls : s_.data_calls;
    add(kind, calls.size());
    calls.push_back({what, bytes});
  }
  void tensor_sum() {
    if (q_.layout.tensor > 1)
      call(Kind::tensor_call, Collective::all_reduce, static_cast<int64_t>(rows_ * width_ * element_));
  }

  void product(Pass pass, bool again = false) {
    op("linear", pass, 2 * rows_ * width_ * hidden_, rows_ * (width_ + hidden_) + width_ * hidden_, again);
  }
  void forward(int64_t layer, bool again) {
    const char* phase = again ? "recompute" : "forward";
    use(w1(layer), phase);
    product(Pass::forward, again);
    op("activation", Pass::forward, rows_ * hidden_, 2 * rows_ * hidden_, again);
    if (again) return;  // the output of the block is not needed again
    use(w2(layer), phase);
    product(Pass::forward);
    tensor_sum();
    op("add", Pass::forward, rows_ * width_, 3 * rows_ * width_);
  }
  // Of each linear the gradient of its input and that of its weight.
  void backward(int64_t layer) {
    use(w2(layer), "backward");
    product(Pass::backward);
    product(Pass::backward);
    add(Kind::gradient, w2(layer));
    op("activation", Pass::backward, rows_ * hidden_, 3 * rows_ * hidden_);
    use(w1(layer), "backward");
    product(Pass::backward);
    product(Pass::backward);
    tensor_sum();
    add(Kind::gradient, w1(layer));
    op("add", Pass::backward, rows_ * width_, 3 * rows_ * width_);
  }
  void micro_step() {
    add(Kind::micro_step);
    for (int64_t i = 0; i < m_.layers; ++i) forward(i, false);
    for (int64_t i = m_.layers - 1; i >= 0; --i) {
      if (q_.recompute) forward(i, true);
      backward(i);
    }
  }

  // The norm's squares and AdamW over what this rank updates.
  void finish() {
    const bool shares = q_.layout.strategy != "ddp" && q_.layout.strategy != "none";
    const double mine =
        static_cast<double>(m_.parameters()) / q_.layout.tensor / (shares ? q_.layout.data : 1);
    const auto bytes = [](DType t) { return static_cast<double>(size_of(t)); };
    const double grad = bytes(q_.policy.grad), state = bytes(q_.policy.state);
    const double value = bytes(q_.policy.value) + (q_.policy.split ? 2 : 0);
    op("square_sum", Pass::forward, 2 * mine, mine * grad / element_);
    if (q_.layout.data > 1) call(Kind::data_call, Collective::all_reduce, 2 * sizeof(double));
    op("adamw", Pass::forward, 12 * mine, mine * (grad + 4 * state + 2 * value) / element_);
  }

  void memory() {
    s_.memory.peak = state_bytes(q_.layout, q_.policy, m_.parameters() / q_.layout.tensor);
    const double of_layer = rows_ * (q_.recompute ? width_ : width_ + hidden_) * element_;
    const double running = rows_ * (2 * width_ + 2 * hidden_) * element_;  // of the block at work
    s_.memory.peak[Tag::activation] =
        static_cast<std::size_t>(of_layer * static_cast<double>(m_.layers) + running);
    const double weights = static_cast<double>(weight());
    if (q_.layout.strategy == "fsdp" && q_.layout.data > 1)
      s_.memory.peak[Tag::comm] = static_cast<std::size_t>(
          (q_.prefetch + 1) * weights * (element_ + static_cast<double>(size_of(q_.policy.grad))));
    if (q_.layout.strategy == "zero2" && q_.layout.data > 1)
      s_.memory.peak[Tag::comm] = static_cast<std::size_t>(
          3 * weights * static_cast<double>(size_of(q_.policy.grad)));  // two on their way, one written
    for (const std::size_t bytes : s_.memory.peak.values) s_.memory.peak_total += bytes;
  }

  const PaperModel& m_;
  const PaperStep& q_;
  const double rows_, width_, hidden_, element_;
  RankSchedule s_;
};

}  // namespace

PerTag<std::size_t> state_bytes(const Layout& layout, const PrecisionPolicy& policy, int64_t parameters) {
  const ZeroTheory t = zero_theory(layout.zero_stage(), policy, parameters, layout.data);
  PerTag<std::size_t> bytes{};
  bytes[policy.casts_at_use() ? Tag::master : Tag::param] = static_cast<std::size_t>(t.weights);
  bytes[Tag::master] += static_cast<std::size_t>(t.low);
  bytes[Tag::grad] = static_cast<std::size_t>(t.grads);
  bytes[Tag::optim] = static_cast<std::size_t>(t.moments);
  return bytes;
}

RankSchedule paper_schedule(const PaperModel& model, const PaperStep& step) {
  return Paper(model, step).all();
}

}  // namespace kiln
