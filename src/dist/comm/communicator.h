// Collectives between the ranks of a run. Work is queued beside the compute stream: it starts when what the
// compute stream has queued so far is done, and the returned handle makes the compute stream wait for its
// end.
#pragma once

#include <string_view>

#include "autograd/rank_context.h"

namespace kiln {

// A collective in flight. Its tensors must stay alive until wait().
class CommHandle {
 public:
  CommHandle() = default;
  explicit CommHandle(Event done) : done_(done) {}
  // Later work of the compute stream follows the collective; the host does not wait.
  void wait(RankContext& ctx) const {
    if (done_.handle != nullptr) ctx.backend().wait(ctx.compute(), done_);
  }

 private:
  Event done_;  // owned by the communicator
};

// Every rank calls the same collectives in the same order. Tensors are contiguous and flat. Sums run in rank
// order in the accumulation type, so all ranks and all runs get the same bits. `subject` says what the tensor
// is, a parameter's name say: two of the same size are told apart by nothing else.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int world() const = 0;
  virtual CommHandle all_reduce(RankContext& ctx, const Tensor& t,
                                std::string_view subject = {}) = 0;  // in place
  virtual CommHandle all_gather(RankContext& ctx, const Tensor& shard, const Tensor& full,
                                std::string_view subject = {}) = 0;  // full: world shards
  virtual CommHandle reduce_scatter(RankContext& ctx, const Tensor& full, const Tensor& shard,
                                    std::string_view subject = {}) = 0;  // shard: this rank's
};

}  // namespace kiln
