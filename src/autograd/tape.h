// The tape: what ran forward, in order, with everything backward will need declared by name.
//
// Gradients of activations: the first contribution writes, later ones add; a contribution that is merely
// passed on (an addition's gradient) is shared without a copy and copied only if it must be written to
// while another still reads it. Backward pops nodes from the end, so a node's saved tensors are freed as soon
// as it has run, and a recomputed span can record itself at the end of the same tape.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autograd/param.h"
#include "autograd/rank_context.h"
#include "base/small_vector.h"

namespace kiln {

class BackwardPass;
class Remake;
class Tape;

enum class GradMode {
  record,    // ops become nodes
  deferred,  // the first run of a recomputed span: nothing is recorded now, but a backward will come
  off,       // evaluation: no backward will come
};

// A span of the model that backward runs again instead of keeping its activations.
struct RecomputeSpan {
  struct Row {
    const char* op;
    const void* variant;
  };
  std::function<Tensor(const Tensor&)> run;
  std::vector<Row> rows;     // the variants forward took, in order: the second run must take the same
  std::vector<Param*> uses;  // of parameters, one entry each: they are notified if backward skips the span
};

// A saved tensor that was given up after forward (autograd/remake.h).
struct GivenUp {
  int saved = 0;   // which of its node
  int buffer = 0;  // which of those that are made again
  std::shared_ptr<Remake> from;
};

struct Node {
  static constexpr int kProblemBytes = 128;

  const char* op = "";
  const char* variant = "";
  const void* row = nullptr;
  bool named = false;  // the row was requested by name: backward keeps to it
  void (*backward)(BackwardPass&) = nullptr;
  SmallVector<int32_t, 4> inputs;  // value indices; -1 where no gradient is wanted
  int32_t first_output = 0;
  int outputs = 0;
  SmallVector<NamedTensor, 6> saved;
  std::vector<GivenUp> given_up;  // of them: views of no buffer until backward is here
  SmallVector<ParamRef, 2> params;
  const std::string* scope = nullptr;
  alignas(16) std::byte problem[kProblemBytes] = {};
  Tensor joint;  // split only: the one gradient buffer its parts are views of
  std::shared_ptr<RecomputeSpan> span;
};

class Tape {
 public:
  explicit Tape(RankContext& ctx) : ctx_(ctx) {}

  GradMode mode() const { return mode_; }
  bool replaying() const { return replay_depth_ > 0; }
  // Does a parameter use in this forward bring a gradient later? Replays were counted when they first ran.
  bool counts_uses() const { return mode_ != GradMode::off && !replaying(); }

  // A leaf whose gradient is wanted: read it with grad() after backward().
  Tensor watch(const Tensor& t);
  Tensor grad(const Tensor& leaf) const;

  bool needs_grad(const Tensor& t) const { return value_index(t) >= 0; }
  int32_t value_index(const Tensor& t) const {
    const ValueId v = t.value();
    const bool alive =
        v.generation == generation_ && v.index >= 0 && v.index < static_cast<int32_t>(values_.size());
    return alive ? v.index : -1;
  }
  DType dtype_of_value(int32_t index) const { return values_[static_cast<std::size_t>(index)].dtype; }

  // Appends `node` with its outputs, which thereby become values of the tape.
  void record(Node&& node, std::initializer_list<Tensor*> outputs);

  // For a result of several parts: gives one of them its gradient, before backward() starts from another.
  void give_grad(const Tensor& output, Tensor grad);

  // Runs backward from `output`, whose gradient is given (for a loss: a scalar on the device, such as 1/k),
  // until the tape is `floor` nodes long. Consumes what it runs.
  void backward(Tensor output, Tensor grad, int floor = 0);

  void reset();  // forgets everything; handles from before become constants
  int size() const { return static_cast<int>(nodes_.size()); }
  const std::vector<Node>& nodes() const { return nodes_; }  // for ledgers and tests

  // The variant pinned for the next op call of a replayed span, or null.
  const void* next_pinned_row(const char* op);
  void note_row(const char* op, const void* row);
  void note_uses(std::initializer_list<ParamRef> params);

 private:
  friend class BackwardPass;
  friend class GradModeGuard;
  friend class OutsideSpans;
  friend class Remake;
  friend class Rematerializer;
  friend SmallVector<Tensor, 4> split(RankContext&, const Tensor&, std::initializer_list<int64_t>);
  friend Tensor recompute(RankContext&, const Tensor&, std::function<Tensor(const Tensor&)>);
  friend void run_split_backward(BackwardPass&);
  friend void run_recompute_backward(BackwardPass&);
  friend Tensor run_again(RankContext&, const RecomputeSpan&, const Tensor&);

  struct Value {
    Shape shape;
    DType dtype = DType::f32;
    Tensor grad;
    bool touched = false;
    int32_t split_node = -1;  // this value is a column range of that node's input
    int64_t column = 0;
  };

  GradSlot grad_slot(int32_t value);
  void adopt_grad(int32_t value, Tensor grad);

  RankContext& ctx_;
  GradMode mode_ = GradMode::record;
  int replay_depth_ = 0;
  uint32_t generation_ = 1;
  std::vector<Node> nodes_;
  std::vector<Value> values_;
  std::vector<RecomputeSpan*> recording_spans_;
  struct Player {
    const std::vector<RecomputeSpan::Row>* rows;
    std::size_t next = 0;
  };
  std::vector<Player> players_;
};

// What an op's backward sees of its node.
class BackwardPass {
 public:
  BackwardPass(RankContext& ctx, Node& node, SmallVector<Tensor, 4> grads)
      : ctx_(ctx), node_(node), grads_(std::move(grads)) {}

  RankContext& ctx() { return ctx_; }
  const Node& node() const { return node_; }
  template <class P>
  P problem() const {
    static_assert(sizeof(P) <= Node::kProblemBytes && std::is_trivially_copyable_v<P>);
    P p;
    std::memcpy(&p, node_.problem, sizeof p);
    return p;
  }
  const Tensor& saved(const char* name) const;
  const Tensor& grad_out(int i = 0) const { return grads_[i]; }
  bool wants(int input) const { return node_.inputs[input] >= 0; }
  // Not wanted() when the input needs no gradient. Slots of one pass never overlap: a value that is an input
  // twice gets a second place, which is added when the pass is over.
  GradSlot grad_in(int input);
  void adopt_grad(int input, Tensor grad);
  const ParamRef& param(int i) const { return node_.params[i]; }

 private:
  friend class Tape;
  friend void run_split_backward(BackwardPass&);
  friend void run_recompute_backward(BackwardPass&);
  struct Repeated {
    int32_t value;
    Tensor grad;
  };
  void add_repeated();

  RankContext& ctx_;
  Node& node_;
  SmallVector<Tensor, 4> grads_;
  SmallVector<int32_t, 4> opened_;  // values whose slots were given out
  std::vector<Repeated> repeated_;
};

class GradModeGuard {
 public:
  GradModeGuard(RankContext& ctx, GradMode mode) : tape_(ctx.tape()), previous_(tape_.mode_) {
    tape_.mode_ = mode;
  }
  ~GradModeGuard() { tape_.mode_ = previous_; }
  GradModeGuard(const GradModeGuard&) = delete;
  GradModeGuard& operator=(const GradModeGuard&) = delete;

 private:
  Tape& tape_;
  GradMode previous_;
};

// While it lives, op calls belong to no recomputed span: neither noted by one nor held to one's variants. For
// work on a parameter whose moment is the strategy's to choose, and so another when the span runs again.
class OutsideSpans {
 public:
  explicit OutsideSpans(RankContext& ctx) : tape_(ctx.tape()) { swap(); }
  ~OutsideSpans() { swap(); }
  OutsideSpans(const OutsideSpans&) = delete;
  OutsideSpans& operator=(const OutsideSpans&) = delete;

 private:
  void swap() {
    std::swap(tape_.players_, players_);
    std::swap(tape_.recording_spans_, recording_);
  }
  Tape& tape_;
  std::vector<Tape::Player> players_;
  std::vector<RecomputeSpan*> recording_;
};

// Cuts the last axis into parts that share x's memory; their gradients are written side by side into one
// buffer that becomes x's gradient, so unpacking a fused projection moves no bytes in either direction.
SmallVector<Tensor, 4> split(RankContext& ctx, const Tensor& x, std::initializer_list<int64_t> sizes);

// Runs f(x) keeping only x; backward runs f again. Spans may nest. f must depend on x and on parameters
// alone.
Tensor recompute(RankContext& ctx, const Tensor& x, std::function<Tensor(const Tensor&)> f);

}  // namespace kiln
