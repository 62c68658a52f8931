// Small models trained under a strategy on thread ranks, and the final state of a run as one text of bytes,
// assembled from the ranks' pieces: comparable whatever the layout was.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "dist/comm/communicator.h"
#include "dist/strategy/strategy.h"
#include "support/tiny_run.h"

namespace kiln {

using StateBytes =
    std::map<std::string, std::vector<std::byte>>;  // by "value.<weight>", "low.", and "m.", "v." of AdamW

// Every parameter's value, low half and optimizer state, whole. Collective.
StateBytes whole_state(RankContext& ctx, Communicator& comm, ParamStore& store, const Optimizer* optimizer);

// Waits a random while at ops, another on each rank: no result may depend on who comes first.
class Jitter final : public OpObserver {
 public:
  Jitter(RankContext& ctx, uint64_t seed) : ctx_(ctx), state_(seed * 1000 + 17 * ctx.rank() + 1) {
    ctx.add_observer(this);
  }
  ~Jitter() override { ctx_.remove_observer(this); }
  void on_op_end(RankContext&, const OpEvent&) override;

 private:
  RankContext& ctx_;
  uint64_t state_;
};

using StrategyOf = std::function<std::unique_ptr<Strategy>(RankContext&, Communicator&)>;
StrategyOf fsdp(int prefetch);
RankOptions one_thread();  // a rank's options

struct RanksResult {
  StateBytes state;  // the same on every rank, or the test has failed
  std::vector<double> losses, norms;
};

// Trains `run` on `world` thread ranks; `jitter` > 0 shuffles their timing.
RanksResult train_ranks(int world, const TinyRun& run, const StrategyOf& make, uint64_t jitter = 0,
                        const std::function<void(Strategy&)>& after = {});

// Memory that a backend has handed out and not got back, over all ranks that use it.
struct CountedMemory {
  std::atomic<int64_t> blocks{0};
  RankOptions options();  // one thread, CPU, counted
};

}  // namespace kiln
