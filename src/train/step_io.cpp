#include "train/step_io.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace kiln {

StepIo::StepIo(RankContext& ctx, int64_t batch, int64_t context, int micro_steps, double loss_scale,
               std::optional<bool> prefetch)
    : ctx_(ctx), size_(batch * context), micro_steps_(micro_steps), reads_tokens_(!ctx.device().is_meta()) {
  const bool streams = ctx.traits().type == DeviceType::cuda;
  timed_ = streams || prefetch.value_or(false);
  ids_ = ctx.empty({2, batch, context}, DType::i32, Tag::data);
  tokens_ = ids_.narrow(0, 0, 1).reshape({batch, context});
  targets_ = ids_.narrow(0, 1, 1).reshape({batch, context});
  scalars_ = make_step_scalars(ctx, loss_scale);
  const std::size_t tokens = reads_tokens_ ? static_cast<std::size_t>(2 * size_ * micro_steps) : 0;
  const std::size_t bytes = 2 * sizeof(StepScalars) + tokens * sizeof(int32_t);
  slots_.reserve(kSlots);
  for (int i = 0; i < kSlots; ++i) {
    slots_.push_back({PinnedMemory(ctx.backend(), {bytes}), OwnedEvent(ctx.backend())});
    std::memset(slots_.back().pinned.data(), 0, bytes);
  }
  if (prefetch.value_or(streams)) ahead_.emplace(ctx, 2 * size_);
}

StepIo::~StepIo() { ctx_.synchronize(); }  // copies from and to the slots may still be queued

void StepIo::begin(int64_t attempt, double lr) {
  if (open_) {  // the step before broke off: its copies from a slot may still be queued
    ctx_.synchronize();
    if (ahead_) ahead_->drop();
  }
  open_ = true;
  attempt_ = attempt;
  Slot& s = slot(attempt);
  ctx_.backend().synchronize(
      s.done);  // three steps ago: done long since, and so are the copies it waited for
  s.timed = 0;
  s.in()->attempt = attempt;
  s.in()->lr = lr;
  // Only what the host owns: the rest of the record is the device's.
  constexpr std::size_t kHostPart = offsetof(StepScalars, step);
  ctx_.backend().copy_to_device(scalars_.raw(), s.in(), kHostPart, ctx_.compute());
}

void StepIo::check(const HostBatch& batch) const {
  if (!reads_tokens_ && batch.tokens.empty() && batch.targets.empty()) return;
  if (batch.tokens.size() != static_cast<std::size_t>(size_) ||
      batch.targets.size() != static_cast<std::size_t>(size_)) {
    throw Error(cat("a micro-batch of ", batch.tokens.size(), " tokens and ", batch.targets.size(),
                    " targets, ", size_, " of each are needed"));
  }
}

void StepIo::take(std::span<const HostBatch> batches) {
  if (batches.size() != static_cast<std::size_t>(micro_steps_))
    throw Error(cat("a step of ", micro_steps_, " micro-steps took ", batches.size(), " micro-batches"));
  const Slot& s = slot(attempt_);
  for (int i = 0; i < micro_steps_; ++i) {
    const HostBatch& batch = batches[static_cast<std::size_t>(i)];
    check(batch);
    int32_t* pinned = this->batch(s, i);
    if (reads_tokens_) {
      std::memcpy(pinned, batch.tokens.data(), batch.tokens.size_bytes());
      std::memcpy(pinned + size_, batch.targets.data(), batch.targets.size_bytes());
    }
    if (ahead_ && i < PrefetchSlots::kSlots) ahead_->send(pinned);
  }
}

void StepIo::load(int micro_step) {
  Slot& s = slot(attempt_);
  const Span* span = timed_ ? next_span(s) : nullptr;
  if (span != nullptr) span->begin->record(ctx_.compute());
  ahead_ ? ahead_->wait() : copy_batch(s, micro_step);
  if (span != nullptr) span->end->record(ctx_.compute());
  if (!ahead_) return;
  ahead_->move_to(ids_);
  const int later = micro_step + static_cast<int>(PrefetchSlots::kSlots);  // its slot is the one just freed
  if (later < micro_steps_) ahead_->send(batch(s, later));
}

void StepIo::reload(int64_t attempt, int micro_step) { copy_batch(slot(attempt), micro_step); }

std::vector<HostBatch> StepIo::batches(int64_t attempt) const {
  std::vector<HostBatch> all;
  const auto size = static_cast<std::size_t>(size_);
  for (int i = 0; reads_tokens_ && i < micro_steps_; ++i) {
    const int32_t* const tokens = batch(slot(attempt), i);
    all.push_back({{tokens, size}, {tokens + size, size}});
  }
  return all;
}

void StepIo::copy_batch(const Slot& s, int micro_step) {
  ctx_.backend().copy_to_device(ids_.raw(), batch(s, micro_step), ids_.bytes().value, ctx_.compute());
}

const StepIo::Span* StepIo::next_span(Slot& s) {
  if (s.timed == s.stalls.size())
    s.stalls.push_back({ctx_.backend().make_timing_event(), ctx_.backend().make_timing_event()});
  return &s.stalls[s.timed++];
}

std::optional<double> StepIo::stall_ms(int64_t attempt) const {
  const Slot& s = slot(attempt);
  if (s.timed == 0) return std::nullopt;
  double sum = 0;
  for (std::size_t i = 0; i < s.timed; ++i) sum += s.stalls[i].end->elapsed_ms(*s.stalls[i].begin);
  return sum;
}

void StepIo::end() {
  Slot& s = slot(attempt_);
  ctx_.backend().copy_to_host(s.out(), scalars_.raw(), sizeof(StepScalars), ctx_.compute());
  ctx_.backend().record(s.done, ctx_.compute());
  open_ = false;
}

void StepIo::restore(const StepScalars& scalars) {
  attempt_ = scalars.attempt;
  slot(attempt_).timed = 0;
  *slot(attempt_).out() = scalars;
  ctx_.upload(scalars_, &scalars);
}

StepScalars StepIo::result(int64_t attempt) {
  Slot& s = slot(attempt);
  ctx_.backend().synchronize(s.done);
  return *s.out();
}

}  // namespace kiln
