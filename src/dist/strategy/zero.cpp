#include "dist/strategy/zero.h"

namespace kiln {

void ZeroStrategy::attach(ParamStore& params) {
  BucketedStrategy::attach(params);
  params.keep_own_low(ctx_);
}

Tensor ZeroStrategy::hold(const Shape& shape, DType dtype) {
  Tensor t = ctx_.empty(shape, dtype, Tag::comm);
  held_ += static_cast<int64_t>(t.bytes().value);
  return t;
}

void ZeroStrategy::drop(Tensor& t) {
  held_ -= static_cast<int64_t>(t.bytes().value);
  t = {};
}

void ZeroStrategy::make_room(int64_t bytes) {
  while (stage_ == 2 && held_ + bytes > room_ && settle_oldest()) {
  }
}

// The next gradients are written to a new bucket: is there room for them?
void ZeroStrategy::launched() {
  for (const Bucket& b : not_launched()) {
    if (b.grads.defined()) continue;
    make_room(b.elements * static_cast<int64_t>(size_of(params_->grads().dtype())));
    break;
  }
}

void ZeroStrategy::begin_step() {
  BucketedStrategy::begin_step();
  held_ = room_ = 0;
  if (stage_ != 2) return;
  const int64_t world = comm_.world();
  for (const Bucket& b : buckets_)
    room_ += b.elements / world * (world - 1) * static_cast<int64_t>(size_of(params_->grads().dtype()));
  for (Bucket& b : buckets_) {
    b.grads = {};
    for (Param* p : b.params) p->grad = {};
  }
}

void ZeroStrategy::grad_begin(Param& p) {
  if (stage_ != 2 || p.grad.defined()) return;
  Bucket& b = *bucket_of(p);
  if (!b.grads.defined()) b.grads = hold({b.elements}, params_->grads().dtype());
  int64_t at = 0;
  for (const Param* q : b.params) {
    if (q == &p) break;
    at += q->padded;
  }
  const int64_t n = p.shape.numel();
  const Tensor padding = b.grads.narrow(0, at + n, p.padded - n);  // summed with the rest: must be zero
  if (p.padded > n) ctx_.backend().zero(padding.raw(), padding.bytes().value, ctx_.compute());
  p.grad = b.grads.narrow(0, at, n).reshape(p.shape);
  p.touched.clear();
}

Tensor ZeroStrategy::whole_grad(const Bucket& b, const Param& p, int64_t at) const {
  return stage_ == 2 ? b.grads.narrow(0, at, p.padded) : params_->local_grad(p);
}

Tensor ZeroStrategy::own_part(const Tensor& flat, const Bucket& b) const {
  if (b.params.size() == 1) return own(flat, *b.params[0]);
  const bool nothing_between = comm_.world() == 1 || flat.numel() < params_->total();
  if (!nothing_between || !b.neighbours) return {};
  return flat.narrow(0, b.params[0]->offset / comm_.world(), b.elements / comm_.world());
}

Tensor ZeroStrategy::all_parts(const Tensor& flat, const Bucket& b) const {
  if (b.params.size() > 1 && (comm_.world() > 1 || !b.neighbours)) return {};
  return flat.narrow(0, b.params[0]->offset, b.elements);
}

Tensor ZeroStrategy::by_rank(const Bucket& b, DType wire) {
  const int world = comm_.world();
  make_room(b.elements * static_cast<int64_t>(size_of(wire)));
  const Tensor packed = hold({world, b.elements / world}, wire);
  int64_t at = 0;
  for (const Param* p : b.params) {
    const Tensor grad = whole_grad(b, *p, at * world).reshape({world, share(*p)});
    put({packed.narrow(1, at, share(*p)), false}, grad);
    at += share(*p);
  }
  return packed.reshape({b.elements});
}

void ZeroStrategy::start(Bucket& b) {
  const DType wire = wire_dtype();
  const bool as_kept = wire == params_->grads().dtype();
  const bool in_order = b.params.size() == 1 || comm_.world() == 1;  // of ranks, in a bucket's own memory
  if (as_kept) b.sent = stage_ == 1 ? all_parts(params_->grads(), b) : in_order ? b.grads : Tensor();
  const bool as_it_lies = b.sent.defined();
  if (!as_it_lies) b.sent = by_rank(b, wire);
  if (stage_ == 2) {
    for (Param* p : b.params) p->grad = {};
    if (!as_it_lies) drop(b.grads);  // else they are what is sent
    b.grads = {};
  }
  if (as_kept && !b.added) b.received = own_part(params_->grads(), b);
  b.placed = b.received.defined();
  b.limited = stage_ == 2 || !as_it_lies;  // else it holds nothing that waiting would give back
  if (!b.placed) {
    make_room(b.elements / comm_.world() * static_cast<int64_t>(size_of(wire)));
    b.received = hold({b.elements / comm_.world()}, wire);
  }
  b.handle = comm_.reduce_scatter(ctx_, b.sent, b.received, b.name);
  volume_.reduce_scatter += b.sent.bytes().value;
}

void ZeroStrategy::finish_bucket(Bucket& b) {
  wait(b.handle);
  if (!b.placed) {
    int64_t at = 0;
    for (const Param* p : b.params) {
      put({own(params_->grads(), *p), b.added}, b.received.narrow(0, at, share(*p)));
      at += share(*p);
    }
  }
  b.added = stage_ == 2 && !tree_;  // the tree adds
  if (stage_ == 2 || b.limited) drop(b.sent);
  if (!b.placed) drop(b.received);
  b.sent = b.received = {};
}

std::vector<ParamSpan> ZeroStrategy::spans(const ParamStore& params, SpanUnit unit) const {
  if (unit == SpanUnit::matrices && comm_.world() > 1) refuse_whole_matrices(cat("zero", stage_));
  return params.spans(comm_.rank(), comm_.world());
}

void ZeroStrategy::after_update() {
  std::size_t done = 0;
  int copied = 0;  // of those in flight
  const auto finish_next = [&] {
    copied -= !buckets_[done].placed;
    finish_gather(buckets_[done++]);
  };
  for (Bucket& b : buckets_) {
    while (copied >= options_.in_flight) finish_next();
    start_gather(b);
    copied += !b.placed;
  }
  while (done < buckets_.size()) finish_next();
}

void ZeroStrategy::start_gather(Bucket& b) {
  const Tensor& values = params_->values();
  b.received = all_parts(values, b);
  b.placed = b.received.defined();
  if (b.placed) {
    b.sent = own_part(values, b);
  } else {
    b.received = ctx_.empty({b.elements}, values.dtype(), Tag::comm);
    b.sent = ctx_.empty({b.elements / comm_.world()}, values.dtype(), Tag::comm);
    int64_t at = 0;
    for (const Param* p : b.params) {
      put({b.sent.narrow(0, at, share(*p)), false}, own(values, *p));
      at += share(*p);
    }
  }
  b.handle = comm_.all_gather(ctx_, b.sent, b.received, b.name);
  volume_.all_gather += b.received.bytes().value;
}

void ZeroStrategy::finish_gather(Bucket& b) {
  wait(b.handle);
  if (!b.placed) {
    const int world = comm_.world();
    const Tensor gathered = b.received.reshape({world, b.elements / world});
    int64_t at = 0;
    for (const Param* p : b.params) {
      put({params_->local_value(*p).reshape({world, share(*p)}), false}, gathered.narrow(1, at, share(*p)));
      at += share(*p);
    }
  }
  b.sent = b.received = {};
  b.handle = {};
}

}  // namespace kiln
