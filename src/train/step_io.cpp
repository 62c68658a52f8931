#include "train/step_io.h"

#include <cstddef>
#include <cstring>

namespace kiln {

StepIo::StepIo(RankContext& ctx, int64_t batch, int64_t context, int micro_steps, double loss_scale)
    : ctx_(ctx), size_(batch * context) {
  tokens_ = ctx.empty({batch, context}, DType::i32, Tag::data);
  targets_ = ctx.empty({batch, context}, DType::i32, Tag::data);
  scalars_ = make_step_scalars(ctx, loss_scale);
  const std::size_t bytes =
      2 * sizeof(StepScalars) + static_cast<std::size_t>(2 * size_ * micro_steps) * sizeof(int32_t);
  slots_.reserve(kSlots);
  for (int i = 0; i < kSlots; ++i) {
    slots_.push_back({PinnedMemory(ctx.backend(), {bytes}), OwnedEvent(ctx.backend())});
    std::memset(slots_.back().pinned.data(), 0, bytes);
  }
}

StepIo::~StepIo() { ctx_.synchronize(); }  // copies from and to the slots may still be queued

void StepIo::begin(int64_t attempt, double lr) {
  if (open_) ctx_.synchronize();  // the step before broke off: its copies from a slot may still be queued
  open_ = true;
  attempt_ = attempt;
  Slot& s = slot(attempt);
  ctx_.backend().synchronize(s.done);  // three steps ago: done long since
  s.in()->attempt = attempt;
  s.in()->lr = lr;
  // Only what the host owns: the rest of the record is the device's.
  constexpr std::size_t kHostPart = offsetof(StepScalars, step);
  ctx_.backend().copy_to_device(scalars_.raw(), s.in(), kHostPart, ctx_.compute());
}

void StepIo::check(const HostBatch& batch) const {
  if (batch.tokens.size() != static_cast<std::size_t>(size_) ||
      batch.targets.size() != static_cast<std::size_t>(size_)) {
    throw Error(cat("a micro-batch of ", batch.tokens.size(), " tokens and ", batch.targets.size(),
                    " targets, ", size_, " of each are needed"));
  }
}

void StepIo::load(int micro_step, const HostBatch& batch) {
  check(batch);
  Slot& s = slot(attempt_);
  int32_t* pinned = s.batch(micro_step, size_);
  std::memcpy(pinned, batch.tokens.data(), batch.tokens.size_bytes());
  std::memcpy(pinned + size_, batch.targets.data(), batch.targets.size_bytes());
  copy_batch(s, micro_step);
}

void StepIo::reload(int64_t attempt, int micro_step) { copy_batch(slot(attempt), micro_step); }

void StepIo::copy_batch(Slot& s, int micro_step) {
  const int32_t* pinned = s.batch(micro_step, size_);
  ctx_.backend().copy_to_device(tokens_.raw(), pinned, tokens_.bytes().value, ctx_.compute());
  ctx_.backend().copy_to_device(targets_.raw(), pinned + size_, targets_.bytes().value, ctx_.compute());
}

void StepIo::end() {
  Slot& s = slot(attempt_);
  ctx_.backend().copy_to_host(s.out(), scalars_.raw(), sizeof(StepScalars), ctx_.compute());
  ctx_.backend().record(s.done, ctx_.compute());
  open_ = false;
}

void StepIo::restore(const StepScalars& scalars) {
  attempt_ = scalars.attempt;
  *slot(attempt_).out() = scalars;
  ctx_.upload(scalars_, &scalars);
}

StepScalars StepIo::result(int64_t attempt) {
  Slot& s = slot(attempt);
  ctx_.backend().synchronize(s.done);
  return *s.out();
}

}  // namespace kiln
