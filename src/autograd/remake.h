// Saved tensors that backward makes again, one piece of the model at a time. recompute() (tape.h) keeps a
// span's input and runs all of it again; here the nodes are recorded as ever, and it is single saved tensors
// they give up when forward is done with them. Backward makes a piece just before the first node that needs
// it, from its own inputs, which may have to be made first; the last node that needs it frees it. So
// attention can be kept while the norms and the matmuls around it are not.
//
//   Rematerializer again(ctx);
//   const Tensor a = again.piece({gate, up}, [&](auto in) { return Tensors{swiglu(ctx, in[0], in[1])}; })[0];
//   const Tensor y = linear(ctx, a, down);       // saves a
//   again.give_up();                             // and does so no more
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "autograd/tape.h"

namespace kiln {

using Tensors = SmallVector<Tensor, 4>;
// Must depend on its inputs and on parameters alone.
using PieceRun = std::function<Tensors(std::span<const Tensor>)>;

// A tensor that will be there when it is asked for.
class Later {
 public:
  Later() = default;
  explicit Later(Tensor kept) : view_(std::move(kept)) {}
  Later(const Tensor& view, std::shared_ptr<Remake> from, int buffer)
      : view_(view.without_buffer()), from_(std::move(from)), buffer_(buffer) {}
  Tensor get(RankContext& ctx) const;

 private:
  Tensor view_;
  std::shared_ptr<Remake> from_;  // none: kept
  int buffer_ = 0;
};

// What one piece gave up, and how it is made.
class Remake {
 public:
  // Made at the first call.
  const Buffer& buffer(RankContext& ctx, int index);

 private:
  friend class Rematerializer;
  // Where a second run has a buffer: saved tensor `index` of its node number `node`, or an output.
  struct Place {
    int node = -1;
    int index = 0;
  };
  void run(RankContext& ctx);
  Buffer made_at(const Place& place, const Tensors& outputs, std::span<const Node> nodes) const;

  std::vector<Later> inputs_;
  PieceRun run_;
  bool pinned_ = false;
  RecomputeSpan first_;  // the variants of the first run, where the second runs the same ops
  const std::string* scope_ = nullptr;
  std::vector<Place> places_;
  std::vector<Buffer> made_;
};

// Of a stretch of the tape, from where it ends when this is made.
class Rematerializer {
 public:
  explicit Rematerializer(RankContext& ctx);

  bool active() const { return active_; }  // else nothing is recorded, and all calls just run

  // Runs it. Backward will again: what it returns and what its nodes save, its inputs aside, can be given up.
  Tensors piece(std::span<const Tensor> inputs, const PieceRun& run);
  // The same of tensors that were made otherwise: `run` makes them from `inputs`, to the bit.
  void remake(std::span<const Tensor> made, std::vector<Later> inputs, PieceRun run);
  // `t` for a later remake(): as it is, or as it will be made again.
  Later later(const Tensor& t) const;
  // Nodes recorded so far let go of what can be made again.
  void give_up();

 private:
  struct Known {
    Buffer buffer;
    std::shared_ptr<Remake> from;
    int index;
  };
  const Known* find(const Tensor& t) const;
  void add(const Tensor& t, const std::shared_ptr<Remake>& from, Remake::Place place);

  RankContext& ctx_;
  bool active_;
  std::size_t begin_;
  std::vector<Known> known_;
};

// Puts back what `node` gave up. Called by backward, before it runs the node.
void make_again(RankContext& ctx, Node& node);

}  // namespace kiln
