// A piece of the step that runs eagerly the first time (the warm-up), is captured the second
// time, and is one graph launch from then on. Where the device cannot capture, or graphs are off, it always
// runs.
#pragma once

#include <functional>
#include <memory>

#include "autograd/rank_context.h"

namespace kiln {

class CapturedRegion {
 public:
  // Regions that run one after another on the same stream may share a pool: no data crosses between them
  // there.
  CapturedRegion(RankContext& ctx, PrivatePool& pool, bool enabled)
      : ctx_(ctx), pool_(pool), enabled_(enabled && ctx.backend().can_capture()) {}

  void run(const std::function<void()>& work);
  bool captured() const { return graph_ != nullptr; }
  void forget() {  // restarts: eager, captured, replayed
    graph_.reset();
    warm_ = false;
  }

 private:
  RankContext& ctx_;
  PrivatePool& pool_;
  bool enabled_;
  bool warm_ = false;
  std::unique_ptr<DeviceGraph> graph_;
};

}  // namespace kiln
