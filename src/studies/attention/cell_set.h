// The tensors of one cell of attention and the calls on them, as a model makes them; and the same on meta,
// which predicts their cost and their memory.
#pragma once

#include <string>
#include <vector>

#include "autograd/rank_context.h"
#include "perf/timing/timing.h"
#include "studies/attention/cells.h"

namespace kiln {

class AttentionSet {
 public:
  AttentionSet(RankContext& ctx, const AttentionCell& cell);
  ~AttentionSet();
  AttentionSet(const AttentionSet&) = delete;
  AttentionSet& operator=(const AttentionSet&) = delete;

  void begin();  // forgets the pass before: outputs, what was saved, gradients
  void forward();
  void backward();
  const Tensor& input(int i) const { return inputs_[static_cast<std::size_t>(i)]; }
  int inputs() const { return static_cast<int>(inputs_.size()); }
  const Tensor& output() const { return output_; }
  const Tensor& given() const { return given_; }  // the output's gradient

 private:
  RankContext& ctx_;
  AttentionCell cell_;
  std::vector<Tensor> inputs_;  // q, k, v; or all three in one
  Tensor given_, output_;
};

struct NamedBytes {
  std::string what;
  std::size_t bytes = 0;
};

// Bytes are beyond what an empty context holds.
struct AttentionMemory {
  std::size_t before_backward = 0, peak = 0;
};

struct AttentionPlan {
  std::string variant, backward_variant;  // those that would run, of forward and of backward
  Cost forward, backward;
  AttentionMemory memory;
  std::vector<NamedBytes> needed;  // of the peak: by tensor, and what backward needs besides

  Cost cost(AttentionPass pass) const {
    return pass == AttentionPass::forward    ? forward
           : pass == AttentionPass::backward ? backward
                                             : forward + backward;
  }
};

// On meta, with the variant that `rank` asks for. Throws what the op throws where none can run.
AttentionPlan plan_attention(const AttentionCell& cell, const RankOptions& rank);

struct AttentionClock {
  // The host waits around every call, as a script would. Otherwise calls are queued and the device's own
  // marks are read: kernels alone, without what it costs to launch them.
  bool wait_each = false;
  std::size_t flush = 0;      // bytes written before each call, outside its time, so that the cache is cold
  double warmup_seconds = 0;  // besides the warm-ups of `timing`
  TimingOptions timing;
};

// Runs the set once, for its memory, then times every pass requested. `ctx` has the variant chosen.
struct AttentionTimes {
  AttentionMemory memory;
  std::vector<Timing> passes;
};
AttentionTimes time_attention(RankContext& ctx, const AttentionCell& cell,
                              const std::vector<AttentionPass>& passes, const AttentionClock& clock);

}  // namespace kiln
