#include "train/prefetch_slots.h"

namespace kiln {

PrefetchSlots::PrefetchSlots(RankContext& ctx, int64_t ids) : ctx_(ctx), copies_(ctx.backend()) {
  slots_.reserve(kSlots);
  for (int64_t i = 0; i < kSlots; ++i) {
    slots_.push_back(
        {ctx.empty({ids}, DType::i32, Tag::data), OwnedEvent(ctx.backend()), OwnedEvent(ctx.backend())});
    // The allocator's memory is in order on the compute stream: what had it before may still be at work.
    ctx.backend().record(slots_.back().free, ctx.compute());
  }
}

PrefetchSlots::~PrefetchSlots() { ctx_.backend().synchronize(copies_); }

void PrefetchSlots::send(const void* pinned) {
  if (sent_ - moved_ >= kSlots) throw Error(cat("a batch was sent ahead while ", kSlots, " are in flight"));
  Slot& s = slot(sent_);
  Backend& backend = ctx_.backend();
  backend.wait(copies_, s.free);
  backend.copy_to_device(s.ids.raw(), pinned, s.ids.bytes().value, copies_);
  backend.record(s.ready, copies_);
  ++sent_;
}

void PrefetchSlots::wait() {
  if (moved_ == sent_) throw Error("wait for a batch that was never sent");
  ctx_.backend().wait(ctx_.compute(), slot(moved_).ready);
}

void PrefetchSlots::move_to(const Tensor& place) {
  Slot& s = slot(moved_);
  Backend& backend = ctx_.backend();
  backend.copy_within(place.raw(), s.ids.raw(), s.ids.bytes().value, ctx_.compute());
  backend.record(s.free, ctx_.compute());
  ++moved_;
}

void PrefetchSlots::drop() {
  ctx_.backend().synchronize(copies_);
  moved_ = sent_;
}

}  // namespace kiln
