#include "dist/zero.h"

namespace kiln {

void ZeroStrategy::attach(ParamStore& params) {
  BucketedStrategy::attach(params);
  params.keep_own_low(ctx_);
}

void ZeroStrategy::begin_step() {
  BucketedStrategy::begin_step();
  if (stage_ != 2) return;
  for (Bucket& b : buckets_) {
    b.grads = {};
    for (Param* p : b.params) p->grad = {};
  }
}

void ZeroStrategy::grad_begin(Param& p) {
  if (stage_ != 2 || p.grad.defined()) return;
  Bucket& b = *bucket_of(p);
  if (!b.grads.defined()) b.grads = ctx_.empty({b.elements}, params_->grads().dtype(), Tag::comm);
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

void ZeroStrategy::start(Bucket& b) {
  const DType wire = wire_dtype();
  const int world = comm_.world();
  const int64_t part = b.elements / world;
  if (b.params.size() == 1 && wire == params_->grads().dtype()) {
    b.sent = whole_grad(b, *b.params[0], 0);
  } else {
    const Tensor by_rank = ctx_.empty({world, part}, wire, Tag::comm);
    int64_t at = 0;
    for (const Param* p : b.params) {
      const Tensor grad = whole_grad(b, *p, at * world).reshape({world, share(*p)});
      put({by_rank.narrow(1, at, share(*p)), false}, grad);
      at += share(*p);
    }
    b.sent = by_rank.reshape({b.elements});
  }
  if (stage_ == 2) {
    for (Param* p : b.params) p->grad = {};
    b.grads = {};
  }
  b.received = ctx_.empty({part}, wire, Tag::comm);
  b.handle = comm_.reduce_scatter(ctx_, b.sent, b.received, b.name);
  volume_.reduce_scatter += b.sent.bytes().value;
}

void ZeroStrategy::settle(Bucket& b) {
  wait(b.handle);
  int64_t at = 0;
  for (const Param* p : b.params) {
    put({own(params_->grads(), *p), b.added}, b.received.narrow(0, at, share(*p)));
    at += share(*p);
  }
  b.added = stage_ == 2 && !tree_;  // the tree adds
  b.sent = b.received = {};
}

std::vector<ParamSpan> ZeroStrategy::spans(const ParamStore& params) const {
  return params.spans(comm_.rank(), comm_.world());
}

void ZeroStrategy::after_update() {
  std::size_t done = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    while (i - done >= static_cast<std::size_t>(options_.in_flight)) finish_gather(buckets_[done++]);
    start_gather(buckets_[i]);
  }
  while (done < buckets_.size()) finish_gather(buckets_[done++]);
}

void ZeroStrategy::start_gather(Bucket& b) {
  const Tensor& values = params_->values();
  b.sent = ctx_.empty({b.elements / comm_.world()}, values.dtype(), Tag::comm);
  int64_t at = 0;
  for (const Param* p : b.params) {
    put({b.sent.narrow(0, at, share(*p)), false}, own(values, *p));
    at += share(*p);
  }
  b.received = b.params.size() == 1 ? params_->local_value(*b.params[0])
                                    : ctx_.empty({b.elements}, values.dtype(), Tag::comm);
  b.handle = comm_.all_gather(ctx_, b.sent, b.received, b.name);
  volume_.all_gather += b.received.bytes().value;
}

void ZeroStrategy::finish_gather(Bucket& b) {
  wait(b.handle);
  if (b.params.size() > 1) {
    const int world = comm_.world();
    const Tensor by_rank = b.received.reshape({world, b.elements / world});
    int64_t at = 0;
    for (const Param* p : b.params) {
      put({params_->local_value(*p).reshape({world, share(*p)}), false}, by_rank.narrow(1, at, share(*p)));
      at += share(*p);
    }
  }
  b.sent = b.received = {};
}

}  // namespace kiln
