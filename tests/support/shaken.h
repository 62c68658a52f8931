// Ranks that arrive at their collectives in a different order each time: seeded sleeps after ops. Results
// must not depend on it.
#pragma once

#include <chrono>
#include <random>
#include <thread>

#include "autograd/op_observer.h"
#include "autograd/rank_context.h"

namespace kiln {

class Shaken final : public OpObserver {
 public:
  // Not at all for seed 0.
  Shaken(RankContext& ctx, int seed)
      : ctx_(ctx), random_(static_cast<unsigned>(1000 * seed + ctx.rank())), still_(seed == 0) {
    ctx.add_observer(this);
  }
  ~Shaken() override { ctx_.remove_observer(this); }
  Shaken(const Shaken&) = delete;
  Shaken& operator=(const Shaken&) = delete;
  void on_op_end(RankContext&, const OpEvent&) override {
    if (!still_ && random_() % 8 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random_() % 300));
  }

 private:
  RankContext& ctx_;
  std::mt19937 random_;
  bool still_;
};

}  // namespace kiln
