#include "dist/strategy/gather_slots.h"

#include <algorithm>

#include "autograd/cast_values.h"
#include "autograd/tape.h"

namespace kiln {
GatherSlots::GatherSlots(RankContext& ctx, Communicator& comm, int prefetch)
    : ctx_(ctx), comm_(comm), prefetch_(prefetch) {
  if (prefetch < 0)
    throw Error(cat("--prefetch is ", prefetch), "0 gathers each weight when it is wanted, 1 one ahead",
                ErrorKind::usage);
}

void GatherSlots::begin_micro_step() {
  if (open_) end_micro_step();
  open_ = true;
  order_.begin();
  next_ahead_ = 0;
  start_ahead();
}

void GatherSlots::end_micro_step() {
  if (!open_) return;
  drop();
  const bool knew = order_.known();
  if (!order_.adopt()) return;
  if (knew && observer_ != nullptr) observer_->on_order_change(order_.change());
  const int64_t bytes = order_.largest();
  if (!order_.known() || (!slots_.empty() && slots_.front().bytes.numel() == bytes)) return;
  slots_.clear();  // before the new ones are there
  slots_.resize(static_cast<std::size_t>(prefetch_) + 1);
  for (Held& h : slots_) h.bytes = ctx_.empty({bytes}, DType::u8, Tag::comm);
}

void GatherSlots::drop() {
  open_ = false;
  for (Held& h : slots_) finish(h);
  for (Held& h : others_) finish(h);
  others_.clear();
  in_use_.clear();
}

void GatherSlots::acquire(Param& p, DType as) {
  const auto held = std::find_if(in_use_.begin(), in_use_.end(), [&](Held* h) { return h->is(p, as); });
  if (held != in_use_.end()) return use(**held, p);  // by an op that is still at it
  const bool followed = order_.following();
  if (open_ && order_.next(p, as)) {
    Held& h = slot_of(order_.here());
    if (h.window == order_.here()) return use(h, p);  // on its way, there, or there from the use before
    if (h.users == 0) {
      start(h, p, as, order_.here());
      next_ahead_ = order_.here() + 1;
      return use(h, p);
    }
    next_ahead_ = order_.here() + 1;  // more weights in use at once than there are slots
  } else if (followed && !order_.following()) {
    for (Held& h : slots_) {
      if (h.users == 0) finish(h);
    }
  }
  use(on_demand(p, as), p);
}

// Without an order. What the use before has left is taken again: it is the same window.
GatherSlots::Held& GatherSlots::on_demand(Param& p, DType as) {
  const auto idle = [](const Held& h) { return h.users == 0 && h.window < 0; };
  for (Held& h : slots_) {
    if (idle(h) && h.is(p, as)) return h;
    if (idle(h)) forget(h);
  }
  for (Held& h : others_) {
    if (idle(h) && h.is(p, as)) return h;
  }
  others_.remove_if(idle);
  Held* h = free_slot(GatherWindow{&p, as, 1}.bytes());
  if (h == nullptr) h = &others_.emplace_back();
  try {
    start(*h, p, as, -1);
  } catch (...) {  // a gather that failed has no user
    others_.remove_if(idle);
    throw;
  }
  return *h;
}

GatherSlots::Held* GatherSlots::free_slot(int64_t bytes) {
  for (Held& h : slots_) {
    if (h.param == nullptr && h.bytes.numel() >= bytes) return &h;
  }
  return nullptr;
}

void GatherSlots::start(Held& h, Param& p, DType as, int64_t window) {
  const int64_t size = GatherWindow{&p, as, 1}.bytes();
  if (!h.bytes.defined()) h.bytes = ctx_.empty({size}, DType::u8, Tag::comm);
  const Tensor local = params_->local_value(p);
  Tensor shard = local;
  if (local.dtype() != as) {
    const OutsideSpans outside(ctx_);
    shard = cast_values(ctx_, local, as, Tag::comm);
  }
  const Tensor whole = h.bytes.narrow(0, 0, size).view_as(as);
  h.handle = comm_.all_gather(ctx_, shard, whole, p.name);
  ++gathers_;
  h.shard = std::move(shard);
  h.param = &p;
  h.as = as;
  h.window = window;
  h.waited = false;
  h.record = {.weight = p.name, .as = as, .bytes = size};
}

// In the order, and only into slots that are done with what they held: the ranks start the same gathers.
void GatherSlots::start_ahead() {
  if (prefetch_ == 0 || !order_.following()) return;
  for (; next_ahead_ < order_.size(); ++next_ahead_) {
    Held& h = slot_of(next_ahead_);
    const bool done = h.param == nullptr || (h.users == 0 && h.window >= 0 && order_.over(h.window));
    if (!done) return;
    const GatherWindow& w = order_[next_ahead_];
    start(h, *w.param, w.as, next_ahead_);
    h.record.ahead = true;
  }
}

void GatherSlots::wait(Held& h) {
  if (h.waited) return;
  if (observer_ != nullptr) {
    h.record.phase = ctx_.phase();
    h.record.sequence = h.handle.sequence();
    observer_->on_wanted();
    h.record.wanted = steady_ns();
    h.handle.wait(ctx_);
    h.record.queued = h.handle.queued_ns();
    h.record.ready = h.handle.ended_ns();
    observer_->on_gather(h.record);
  } else {
    h.handle.wait(ctx_);
  }
  h.waited = true;
  h.shard = {};
  h.handle = {};
}

void GatherSlots::use(Held& h, Param& p) {
  wait(h);
  const int64_t n = p.shape.numel();
  const auto bytes = n * static_cast<int64_t>(size_of(h.as));
  p.value = h.bytes.narrow(0, 0, bytes).view_as(h.as).reshape(p.shape);
  if (h.users++ == 0) in_use_.push_back(&h);
}

void GatherSlots::release(Param& p) {
  const auto last = std::find_if(in_use_.rbegin(), in_use_.rend(), [&](Held* h) { return h->param == &p; });
  if (last == in_use_.rend()) return;  // a micro-step that broke off dropped it
  Held& h = **last;
  if (--h.users > 0) return;
  in_use_.erase(std::next(last).base());
  p.value = {};
  if (!open_) {  // between steps weights change: nothing is kept for the next use
    if (is_slot(h)) forget(h);
    others_.remove_if([](const Held& o) { return o.users == 0; });
    return;
  }
  try {  // a use ends in a destructor: nothing may leave it
    start_ahead();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the use that wants the weight starts the
  }  // gather itself, and reports the error
}

void GatherSlots::finish(Held& h) {
  if (h.param != nullptr && !h.waited) {
    try {
      h.handle.wait(ctx_);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): nobody wanted it; who comes to the
    }  // next collective gets the error
  }
  if (h.param != nullptr && h.users > 0) h.param->value = {};
  forget(h);
}

void GatherSlots::forget(Held& h) {
  Tensor bytes = std::move(h.bytes);
  h = {};
  h.bytes = std::move(bytes);
}

}  // namespace kiln
