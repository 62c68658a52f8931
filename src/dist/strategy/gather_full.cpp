#include "dist/strategy/gather_full.h"

namespace kiln {
namespace {

void copy(RankContext& ctx, const Tensor& to, const Tensor& from) {
  ctx.backend().copy_within(to.raw(), from.raw(), from.bytes().value, ctx.compute());
}

void check_same(ParamStore& sharded, ParamStore& full) {
  if (full.shards() != 1) throw Error("gather_full fills a store that is not sharded");
  if (full.layout().precision != sharded.layout().precision)
    throw Error(cat("gather_full: the shards are ", name_of(sharded.layout().precision),
                    ", the full store is ", name_of(full.layout().precision)));
  auto q = full.params().begin();
  for (const Param& p : sharded.params()) {
    if (q == full.params().end() || q->name != p.name || !(q->shape == p.shape))
      throw Error(cat("gather_full: the models differ at ", p.name, " ", p.shape.str(),
                      q == full.params().end() ? "" : cat(" and ", q->name, " ", q->shape.str())));
    ++q;
  }
}

}  // namespace

Tensor gather_whole(RankContext& ctx, Communicator& comm, const Param& p, const Tensor& piece) {
  if (p.shards == 1) return piece.narrow(0, 0, p.shape.numel()).reshape(p.shape);
  const Tensor whole = ctx.empty({p.padded}, piece.dtype(), Tag::comm);
  // Low halves are integers; only their bytes travel.
  const auto wire = [](const Tensor& t) { return t.dtype() == DType::i16 ? t.view_as(DType::bf16) : t; };
  comm.all_gather(ctx, wire(piece), wire(whole), p.name).wait(ctx);
  return whole.narrow(0, 0, p.shape.numel()).reshape(p.shape);
}

void gather_full(RankContext& ctx, Communicator& comm, ParamStore& sharded, ParamStore& full) {
  check_same(sharded, full);
  auto to = full.params().begin();
  for (const Param& p : sharded.params()) {
    const Param& q = *to++;
    copy(ctx, full.local_value(q), gather_whole(ctx, comm, p, sharded.local_value(p)));
    if (sharded.low().defined() && full.low().defined())
      copy(ctx, full.local_low(q), gather_whole(ctx, comm, p, sharded.local_low(p)));
  }
  ctx.synchronize();
}

}  // namespace kiln
