#include "dist/strategy/bucketed.h"

#include <algorithm>

#include "autograd/accumulate.h"
#include "autograd/cast_values.h"

namespace kiln {

void BucketedStrategy::attach(ParamStore& params) {
  params_ = &params;
  params.set_hooks(this);
  comm_.broadcast(ctx_, params.values(), 0, "weights").wait(ctx_);
  if (params.low().defined())  // bits are moved, not numbers
    comm_.broadcast(ctx_, params.low().view_as(DType::bf16), 0, "low halves").wait(ctx_);
  if (options_.chunks > 0) tree_.emplace(ctx_, params.grads(), options_.chunks);
  refresh();
}

void BucketedStrategy::refresh() {
  buckets_ = make_buckets(*params_, options_.cap, options_.share);
  places_.clear();
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    for (const Param* p : buckets_[i].params) places_[p] = {static_cast<int>(i), false};
  }
}

void BucketedStrategy::begin_step() {
  volume_ = {};
  // An earlier step may have broken off anywhere. Its sums write where this one's gradients go.
  if (std::any_of(buckets_.begin(), buckets_.end(), [](const Bucket& b) { return !b.handle.done(); }))
    comm_.drain(ctx_);
  for (Bucket& b : buckets_) {
    b.sent = b.received = {};
    b.handle = {};
    b.added = false;
  }
  chunk_ = 0;
  open_micro_step();
}

void BucketedStrategy::begin_micro_step(bool last) {
  if (tree_) params_->begin_step();  // each chunk's gradients by themselves
  if (open_ && options_.every_micro_step) {
    flush();
    open_micro_step();
  }
  active_ = last || options_.every_micro_step;
  open_ = true;
}

// Of a tree each chunk is complete before the next begins. Those that are not sent are folded whole; of one
// that is sent before it is summed over micro-steps, set_ready has folded each parameter on its way out.
void BucketedStrategy::end_micro_step() {
  if (!tree_) return;
  if (active_) {
    flush();
    open_micro_step();
  } else {
    params_->finish_gradients(ctx_);
  }
  if (!active_ || options_.every_micro_step) tree_->fold(params_->grads(), chunk_);
  ++chunk_;
}

void BucketedStrategy::open_micro_step() {
  next_ = settled_ = 0;
  in_flight_ = 0;
  open_ = false;
  for (Bucket& b : buckets_) b.waiting = static_cast<int>(b.params.size());
  for (auto& [p, place] : places_) place.ready = false;
}

Bucket* BucketedStrategy::bucket_of(const Param& p) {
  const auto found = places_.find(&p);
  return found == places_.end() ? nullptr : &buckets_[static_cast<std::size_t>(found->second.bucket)];
}

void BucketedStrategy::grad_ready(Param& p) {
  Bucket* b = bucket_of(p);
  if (!active_ || b == nullptr) return;
  set_ready(p, *b);
  if (options_.as_ready) launch();
}

void BucketedStrategy::set_ready(Param& p, Bucket& b) {
  Place& place = places_.at(&p);
  if (place.ready) return;
  grad_begin(p);                 // there may have been no contribution that allocated it
  zero_untouched_rows(ctx_, p);  // now: later it would race with the sum
  if (tree_ && !options_.every_micro_step) tree_->fold(params_->local_grad(p), chunk_);
  place.ready = true;
  --b.waiting;
  if (observer_ != nullptr) observer_->on_gradient(p, p.padded * static_cast<int64_t>(size_of(wire_dtype())));
}

void BucketedStrategy::launch() {
  for (; next_ < buckets_.size() && buckets_[next_].waiting == 0; ++next_) {
    while (in_flight_ >= options_.in_flight) settle_next();
    if (observer_ != nullptr) observer_->on_start(buckets_[next_]);
    start(buckets_[next_]);
    in_flight_ += buckets_[next_].limited;
  }
  launched();
}

// A parameter the loss did not reach on this rank may have been reached on another: it is sent as zeros.
void BucketedStrategy::flush() {
  for (std::size_t i = next_; i < buckets_.size(); ++i) {
    for (Param* p : buckets_[i].params) set_ready(*p, buckets_[i]);
    launch();
  }
  while (settled_ < buckets_.size()) settle_next();
}

bool BucketedStrategy::settle_oldest() {
  if (settled_ >= next_) return false;
  settle_next();
  return true;
}

void BucketedStrategy::settle_next() {
  Bucket& b = buckets_[settled_++];
  finish_bucket(b);
  b.handle = {};
  in_flight_ -= b.limited;
}

void BucketedStrategy::wait(const CommHandle& handle) {
  if (observer_ != nullptr) observer_->on_wait_begin();
  handle.wait(ctx_);
  if (observer_ != nullptr) observer_->on_wait_end();
}

void BucketedStrategy::finish_gradients() {
  if (observer_ != nullptr) observer_->on_finish_begin();
  if (!tree_) flush();  // else each micro-step ended with it
  if (observer_ != nullptr) observer_->on_finish_end();
  open_micro_step();
}

std::vector<Tensor> BucketedStrategy::own_grads(const ParamStore& params) const {
  const Tensor& flat = params.grads();
  const auto size = static_cast<int64_t>(size_of(flat.dtype()));
  std::vector<Tensor> pieces;
  for (const ParamSpan& s : params.spans(comm_.rank(), comm_.world())) {
    // A rank by itself adds up neighbours as one range, which is what a run without a strategy does. With
    // more ranks only ZeRO-2 would have some, and its sums would not be those of the others any more.
    const bool next_to_it = comm_.world() == 1 && !pieces.empty() &&
                            pieces.back().raw() + pieces.back().numel() * size == s.grad.raw();
    if (!next_to_it) {
      pieces.push_back(s.grad);
      continue;
    }
    const int64_t begin = (pieces.back().raw() - flat.raw()) / size;
    pieces.back() = flat.narrow(0, begin, pieces.back().numel() + s.grad.numel());
  }
  return pieces;
}

// Of the two of a step: each rank has the loss of its tokens and the squares of its pieces.
void BucketedStrategy::sum_over_ranks(const Tensor& numbers, std::string_view what) {
  wait(comm_.all_reduce(ctx_, numbers, what));
}

void BucketedStrategy::put(const GradSlot& slot, const Tensor& src) {
  if (slot.tensor.dtype() == src.dtype())
    accumulate_grad(ctx_, slot, src);
  else
    cast_into(ctx_, slot, src);
}

// Gradients that are narrow already go as they are: their sum is rounded to their dtype on either wire.
DType BucketedStrategy::wire_dtype() const {
  const DType kept = params_->grads().dtype();
  return size_of(kept) > size_of(options_.wire) && options_.wire == DType::bf16 ? DType::bf16 : kept;
}

}  // namespace kiln
