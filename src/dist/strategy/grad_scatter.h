// Gradients of sharded weights: whole ones while backward adds to them, then summed over the ranks during the
// rest of backward, each rank keeping its shard. Each micro-step's sum is added to the shards in the arena;
// so ranks are summed before micro-steps are.
#pragma once

#include <deque>
#include <map>

#include "autograd/param_store.h"
#include "dist/comm/communicator.h"

namespace kiln {

class GradScatter {
 public:
  // `beside`: how many sums may be in flight during backward; each holds a whole gradient.
  GradScatter(RankContext& ctx, Communicator& comm, int beside) : ctx_(ctx), comm_(comm), beside_(beside) {}
  GradScatter(const GradScatter&) = delete;
  GradScatter& operator=(const GradScatter&) = delete;

  void attach(const ParamStore& params) { params_ = &params; }
  void begin_step();
  void begin(Param& p);                 // before a contribution: leaves Param::grad defined
  void ready(Param& p);                 // all of this micro-step's have arrived
  void finish();                        // of a step: all shards are complete
  bool written(const Param& p) const {  // in this step
    const auto s = states_.find(&p);
    return s != states_.end() && s->second.written;
  }

 private:
  struct State {
    Tensor whole;          // flat, this micro-step's, while contributions arrive
    bool written = false;  // the shard, in this step
  };
  struct Sum {
    Tensor whole, part;  // the part is to be added to the shard; undefined: it went there directly
    Tensor shard;
    CommHandle handle;
  };
  void retire();
  void drop();

  RankContext& ctx_;
  Communicator& comm_;
  const int beside_;
  const ParamStore* params_ = nullptr;
  std::map<const Param*, State> states_;
  std::deque<Sum> sums_;  // in flight, the oldest first
};

}  // namespace kiln
