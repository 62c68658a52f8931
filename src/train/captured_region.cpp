#include "train/captured_region.h"

namespace kiln {

void CapturedRegion::run(const std::function<void()>& work) {
  if (!enabled_ || !warm_) {
    work();
    warm_ = true;
    return;
  }
  if (!graph_) {
    ctx_.allocator().release_cached();  // frees the eager pass's activations for the graph's own
    PoolScope scope(pool_);
    graph_ = ctx_.backend().capture(ctx_.compute(), work);
  }
  graph_->launch(ctx_.compute());
}

}  // namespace kiln
