#include "dist/bucketed.h"

#include <cstddef>

#include "autograd/accumulate.h"
#include "autograd/cast_values.h"
#include "ops/step_scalars/step_scalars.h"

namespace kiln {

void BucketedStrategy::attach(ParamStore& params) {
  params_ = &params;
  params.set_hooks(this);
  comm_.broadcast(ctx_, params.values(), 0, "weights").wait(ctx_);
  if (params.low().defined())  // bits are moved, not numbers
    comm_.broadcast(ctx_, params.low().view_as(DType::bf16), 0, "low halves").wait(ctx_);
  refresh();
}

void BucketedStrategy::refresh() {
  buckets_ = make_buckets(*params_, options_.cap);
  places_.clear();
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    for (const Param* p : buckets_[i].params) places_[p] = {static_cast<int>(i), false};
  }
}

void BucketedStrategy::begin_step() {
  volume_ = {};
  for (Bucket& b : buckets_) {  // an earlier step may have broken off anywhere
    b.sent = b.received = {};
    b.handle = {};
    b.added = false;
  }
  open_micro_step();
}

void BucketedStrategy::begin_micro_step(bool last) {
  if (open_ && options_.every_micro_step) {
    flush();
    open_micro_step();
  }
  active_ = last || options_.every_micro_step;
  open_ = true;
}

void BucketedStrategy::open_micro_step() {
  next_ = settled_ = 0;
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
  grad_begin(p);                 // there may have been no contribution that asked for room
  zero_untouched_rows(ctx_, p);  // now: later it would race with the sum
  place.ready = true;
  --b.waiting;
  if (observer_ != nullptr)
    observer_->on_gradient(p, p.padded * static_cast<int64_t>(size_of(wire_dtype())), steady_ns());
}

void BucketedStrategy::launch() {
  for (; next_ < buckets_.size() && buckets_[next_].waiting == 0; ++next_) {
    while (next_ - settled_ >= static_cast<std::size_t>(options_.in_flight)) settle(buckets_[settled_++]);
    if (observer_ != nullptr) observer_->on_start(buckets_[next_], steady_ns());
    start(buckets_[next_]);
  }
}

// A parameter the loss did not reach on this rank may have been reached on another: it is sent as zeros.
void BucketedStrategy::flush() {
  for (std::size_t i = next_; i < buckets_.size(); ++i) {
    for (Param* p : buckets_[i].params) set_ready(*p, buckets_[i]);
    launch();
  }
  while (settled_ < buckets_.size()) settle(buckets_[settled_++]);
}

void BucketedStrategy::wait(const CommHandle& handle) {
  const int64_t begin = observer_ != nullptr ? steady_ns() : 0;
  handle.wait(ctx_);
  if (observer_ != nullptr) observer_->on_wait(begin, steady_ns());
}

void BucketedStrategy::finish_gradients() {
  const int64_t begin = observer_ != nullptr ? steady_ns() : 0;
  flush();
  if (observer_ != nullptr) observer_->on_finish(begin, steady_ns());
  open_micro_step();
}

std::vector<Tensor> BucketedStrategy::own_grads(const ParamStore& params) const {
  std::vector<Tensor> pieces;
  for (const ParamSpan& s : params.spans(comm_.rank(), comm_.world())) pieces.push_back(s.grad);
  return pieces;
}

void BucketedStrategy::reduce_scalars(const Tensor& scalars) {
  static_assert(offsetof(StepScalars, square_sum) == offsetof(StepScalars, loss) + sizeof(double));
  // Each rank has the loss of its tokens and the squares of its pieces.
  const Tensor both = scalars.narrow(0, offsetof(StepScalars, loss), 2 * sizeof(double)).view_as(DType::f64);
  wait(comm_.all_reduce(ctx_, both, "loss and squares"));
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
