#include <algorithm>

#include "device/owned.h"
#include "dist/comm/reduce_ranks.h"
#include "dist/comm/thread_group.h"

namespace kiln {
namespace {

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(RankContext& ctx, ThreadGroup& group)
      : ctx_(ctx),
        group_(group),
        queued_(ctx.backend()),
        ready_(ctx.backend()),
        done_(ctx.backend()),
        finished_(ctx.backend()) {
    if (group.world() > kMaxThreadRanks)
      throw Error(cat("at most ", kMaxThreadRanks, " ranks can be threads of one process"));
  }
  ~ThreadCommunicator() override { ctx_.backend().synchronize(ctx_.comm()); }

  int rank() const override { return ctx_.rank(); }
  int world() const override { return group_.world(); }

  // Each rank sums its chunk of the tensor, then everybody copies everybody's chunk.
  CommHandle all_reduce(RankContext&, const Tensor& t, std::string_view subject) override {
    check(t, "all_reduce");
    const int64_t chunk = (t.numel() + world() - 1) / world();
    const Tensor mine = ctx_.empty({chunk}, t.dtype(), Tag::comm);
    mine.buffer().used_on(ctx_.comm());
    t.buffer().used_on(ctx_.comm());
    begin();
    exchange("all_reduce", subject, t, t.numel(), [&] { reduce_chunk(mine, t.numel(), chunk); });
    exchange("all_reduce (gather)", subject, mine, t.numel(), [&] { gather_chunks(t, chunk); });
    return end();
  }

  CommHandle all_gather(RankContext&, const Tensor& shard, const Tensor& full,
                        std::string_view subject) override {
    check(shard, "all_gather");
    check_sizes("all_gather", shard, full);
    shard.buffer().used_on(ctx_.comm());
    full.buffer().used_on(ctx_.comm());
    begin();
    exchange("all_gather", subject, shard, shard.numel(), [&] { gather_chunks(full, shard.numel()); });
    return end();
  }

  CommHandle reduce_scatter(RankContext&, const Tensor& full, const Tensor& shard,
                            std::string_view subject) override {
    check(full, "reduce_scatter");
    check_sizes("reduce_scatter", shard, full);
    shard.buffer().used_on(ctx_.comm());
    full.buffer().used_on(ctx_.comm());
    begin();
    exchange("reduce_scatter", subject, full, full.numel(),
             [&] { reduce_chunk(shard, full.numel(), shard.numel()); });
    return end();
  }

 private:
  void check(const Tensor& t, const char* collective) const {
    if (!t.contiguous())
      throw Error(cat("[", collective, "] needs a contiguous tensor, got a view of ", t.shape().str()));
    if (!is_float(t.dtype()))
      throw Error(cat("[", collective, "] takes floating tensors, got ", name_of(t.dtype())));
  }
  void check_sizes(const char* collective, const Tensor& shard, const Tensor& full) const {
    if (shard.numel() * world() == full.numel() && shard.dtype() == full.dtype() && full.contiguous()) return;
    throw Error(cat("[", collective, "] ", world(), " shards of ", shard.shape().str(), " ",
                    name_of(shard.dtype()), " do not make ", full.shape().str(), " ", name_of(full.dtype())));
  }

  void begin() {  // the communication stream follows what compute has queued
    ctx_.backend().record(queued_, ctx_.compute());
    ctx_.backend().wait(ctx_.comm(), queued_);
  }

  // All ranks publish `data`, run `share` (which may read every rank's data), and wait until all have read.
  // Events are recorded again only after a meeting that follows every wait on them.
  template <class Share>
  void exchange(const char* collective, std::string_view subject, const Tensor& data, int64_t count,
                Share share) {
    Backend& b = ctx_.backend();
    b.record(ready_, ctx_.comm());
    const CommPost post{collective, std::string(subject), count, data.dtype(), data.raw(), ready_, done_};
    group_.open(rank(), post);
    try {
      for (int r = 0; r < world(); ++r) b.wait(ctx_.comm(), group_.post(r).ready);
      share();
      b.record(done_, ctx_.comm());
      group_.close(rank(), post);
    } catch (const std::exception& e) {
      finish_reading();
      group_.abandon(rank(), e.what());
      throw;
    }
    for (int r = 0; r < world(); ++r) b.wait(ctx_.comm(), group_.post(r).done);
  }

  // What this rank has queued may read memory that its owner frees once all have left.
  void finish_reading() {
    try {
      ctx_.backend().synchronize(ctx_.comm());
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the device is lost and reads nothing
    }
  }

  CommHandle end() {
    ctx_.backend().record(finished_, ctx_.comm());
    return CommHandle(finished_);
  }

  void reduce_chunk(const Tensor& dst, int64_t total, int64_t chunk) {
    const int64_t first = std::min(total, chunk * rank());
    const int64_t count = std::min(total, first + chunk) - first;
    RankSources src;
    src.world = world();
    for (int r = 0; r < world(); ++r) {
      src.data[r] = group_.post(r).data + first * static_cast<int64_t>(size_of(dst.dtype()));
    }
    reduce_ranks(ctx_, dst.raw(), src, count, dst.dtype());
  }

  void gather_chunks(const Tensor& dst, int64_t chunk) {
    const int64_t total = dst.numel(), size = static_cast<int64_t>(size_of(dst.dtype()));
    for (int r = 0; r < world(); ++r) {
      const int64_t first = std::min(total, chunk * r), count = std::min(total, first + chunk) - first;
      std::byte* const place = dst.raw() + first * size;
      if (count == 0 || place == group_.post(r).data) continue;  // in place: others may be reading it
      ctx_.backend().copy_within(place, group_.post(r).data, static_cast<std::size_t>(count * size),
                                 ctx_.comm());
    }
  }

  RankContext& ctx_;
  ThreadGroup& group_;
  OwnedEvent queued_, ready_, done_, finished_;
};

}  // namespace

std::unique_ptr<Communicator> make_thread_communicator(RankContext& ctx, ThreadGroup& group) {
  return std::make_unique<ThreadCommunicator>(ctx, group);
}

}  // namespace kiln
