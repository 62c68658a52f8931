// Argument checks: what each collective requires of its tensors.
#include "dist/comm/communicator.h"

namespace kiln {
namespace {

void check_contiguous(std::string_view collective, const Tensor& t) {
  if (!t.contiguous())
    throw Error(cat("[", collective, "] needs a contiguous tensor, got a view of ", t.shape().str()));
}

void check_summable(std::string_view collective, const Tensor& t) {
  check_contiguous(collective, t);
  if (!is_float(t.dtype()))
    throw Error(cat("[", collective, "] takes floating tensors, got ", name_of(t.dtype())));
}

// The shard may be a separate tensor, or lie at its place in the whole.
void check_shards(std::string_view collective, int world, const Tensor& shard, const Tensor& full) {
  if (shard.numel() * world == full.numel() && shard.dtype() == full.dtype() && full.contiguous()) return;
  throw Error(cat("[", collective, "] ", world, " shards of ", shard.shape().str(), " ",
                  name_of(shard.dtype()), " do not make ", full.shape().str(), " ", name_of(full.dtype())));
}

void check_rank(std::string_view collective, const Communicator& c, int rank, bool other) {
  if (rank < 0 || rank >= c.world())
    throw Error(cat("[", collective, "] there is no rank ", rank, " among ", c.world()));
  if (other && rank == c.rank()) throw Error(cat("[", collective, "] rank ", rank, " names itself"));
}

CommCall call_of(Collective what, std::string_view subject, const Tensor& t, int peer = -1) {
  CommCall c;
  c.what = what;
  c.subject = std::string(subject);
  c.dtype = t.dtype();
  c.count = t.numel();
  c.peer = peer;
  return c;
}

}  // namespace

CommHandle Communicator::all_reduce(RankContext& ctx, const Tensor& t, std::string_view subject) {
  check_summable("all_reduce", t);
  return queue(ctx, call_of(Collective::all_reduce, subject, t), t, t);
}

CommHandle Communicator::all_gather(RankContext& ctx, const Tensor& shard, const Tensor& full,
                                    std::string_view subject) {
  check_contiguous("all_gather", shard);
  check_shards("all_gather", world(), shard, full);
  return queue(ctx, call_of(Collective::all_gather, subject, shard), shard, full);
}

CommHandle Communicator::reduce_scatter(RankContext& ctx, const Tensor& full, const Tensor& shard,
                                        std::string_view subject) {
  check_summable("reduce_scatter", full);
  check_contiguous("reduce_scatter", shard);
  check_shards("reduce_scatter", world(), shard, full);
  return queue(ctx, call_of(Collective::reduce_scatter, subject, full), full, shard);
}

CommHandle Communicator::reduce(RankContext& ctx, const Tensor& t, int root, std::string_view subject) {
  check_summable("reduce", t);
  check_rank("reduce", *this, root, false);
  return queue(ctx, call_of(Collective::reduce, subject, t, root), t, t);
}

CommHandle Communicator::broadcast(RankContext& ctx, const Tensor& t, int root, std::string_view subject) {
  check_contiguous("broadcast", t);
  check_rank("broadcast", *this, root, false);
  return queue(ctx, call_of(Collective::broadcast, subject, t, root), t, t);
}

CommHandle Communicator::send(RankContext& ctx, const Tensor& t, int to, std::string_view subject) {
  check_contiguous("send", t);
  check_rank("send", *this, to, true);
  return queue(ctx, call_of(Collective::send, subject, t, to), t, {});
}

CommHandle Communicator::recv(RankContext& ctx, const Tensor& t, int from, std::string_view subject) {
  check_contiguous("recv", t);
  check_rank("recv", *this, from, true);
  return queue(ctx, call_of(Collective::recv, subject, t, from), {}, t);
}

CommHandle Communicator::send_recv(RankContext& ctx, const Tensor& out, int to, const Tensor& in, int from,
                                   std::string_view subject) {
  check_contiguous("send_recv", out);
  check_contiguous("send_recv", in);
  check_rank("send_recv", *this, to, true);
  check_rank("send_recv", *this, from, true);
  if (out.dtype() != in.dtype())
    throw Error(cat("[send_recv] sends ", name_of(out.dtype()), " and receives ", name_of(in.dtype())));
  CommCall call = call_of(Collective::send_recv, subject, out, to);
  call.source = from;
  call.take = in.numel();
  return queue(ctx, std::move(call), out, in);
}

void Communicator::barrier(RankContext& ctx, std::string_view subject) {
  CommCall call;
  call.subject = std::string(subject);
  queue(ctx, std::move(call), {}, {}).wait(ctx);
}

std::unique_ptr<Communicator> Communicator::split(RankContext& ctx, int color, int key) {
  CommCall call;
  call.subject = "split";
  std::unique_ptr<Transport> part;
  queue(ctx, std::move(call), {}, {}, [&] { part = transport_->split(color, key); }).wait(ctx);
  return part ? std::make_unique<Communicator>(ctx, std::move(part), options_, cat(label_, "-", ++splits_))
              : nullptr;
}

}  // namespace kiln
