#include "dist/strategy/ddp.h"

namespace kiln {

BucketOptions DdpStrategy::form(std::string_view name, double cap, DType grad_comm) {
  BucketOptions o = name == "naive"     ? naive()
                    : name == "flat"    ? flat()
                    : name == "overlap" ? overlap()
                                        : bucketed(cap, grad_comm);
  o.wire = grad_comm;
  return o;
}

void DdpStrategy::start(Bucket& b) {
  const DType wire = wire_dtype();
  if (b.range.defined() && b.range.dtype() == wire) {
    b.sent = b.range;
  } else {
    b.sent = ctx_.empty({b.elements}, wire, Tag::comm);
    int64_t at = 0;
    for (const Param* p : b.params) {
      put({b.sent.narrow(0, at, p->padded), false}, params_->local_grad(*p));
      at += p->padded;
    }
  }
  b.handle = comm_.all_reduce(ctx_, b.sent, b.name);
  volume_.all_reduce += b.sent.bytes().value;
}

void DdpStrategy::finish_bucket(Bucket& b) {
  wait(b.handle);
  if (!b.range.defined() || b.sent.raw() != b.range.raw()) {
    int64_t at = 0;
    for (const Param* p : b.params) {
      put({params_->local_grad(*p), false}, b.sent.narrow(0, at, p->padded));
      at += p->padded;
    }
  }
  b.sent = {};
}

}  // namespace kiln
