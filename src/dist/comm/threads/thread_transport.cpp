#include <algorithm>
#include <utility>

#include "base/on_exit.h"
#include "device/owned.h"
#include "dist/comm/reduce_ranks.h"
#include "dist/comm/threads/thread_group.h"

namespace kiln {
namespace {

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(RankContext& ctx, std::shared_ptr<ThreadGroup> group, int rank)
      : ctx_(ctx),
        backend_(ctx.backend()),
        group_(std::move(group)),
        rank_(rank),
        ready_(ctx.backend()),
        done_(ctx.backend()) {
    if (world() > kMaxThreadRanks)
      throw Error(cat("at most ", kMaxThreadRanks, " ranks can be threads of one process"));
  }
  ~ThreadTransport() override { group_->wait_until_all_left(); }  // another may be about to wait for `done_`

  std::string_view name() const override { return "threads"; }
  int rank() const override { return rank_; }
  int world() const override { return group_->world(); }
  void abort(const std::string& why) override { group_->abort(rank_, why.c_str()); }
  std::optional<std::chrono::steady_clock::time_point> all_arrived() const override {
    return group_->arrived(rank_);
  }

  void run(const CommCall& call, Stream stream) override {
    switch (call.what) {
      case Collective::all_reduce:
        return exchange(post_of(call), stream, [&] { reduce_a_part(call, stream, 0, world()); });
      case Collective::reduce:
        return exchange(post_of(call), stream, [&] { reduce_a_part(call, stream, call.peer, 1); });
      case Collective::reduce_scatter:
        return exchange(post_of(call), stream, [&] { reduce_mine(call, stream); });
      case Collective::all_gather:
        return exchange(post_of(call), stream, [&] { gather(call, stream); });
      case Collective::broadcast:
        return exchange(post_of(call), stream, [&] { copy(call.out, call.peer, call, stream); });
      case Collective::barrier:
        return exchange(post_of(call), stream, [] {});
      case Collective::send:
      case Collective::recv:
      case Collective::send_recv:
        return pass(call, stream);
    }
  }

  std::unique_ptr<Transport> split(int color, int key) override {
    CommPost post;
    post.title = post.text = "split";
    post.color = color;
    post.key = key;
    std::shared_ptr<ThreadGroup> part;
    int place = 0;
    exchange(post, {}, [&] {
      if (color < 0) return;
      std::vector<std::pair<int, int>> same;  // (key, rank)
      for (int r = 0; r < world(); ++r) {
        if (group_->post(r).color == color) same.emplace_back(group_->post(r).key, r);
      }
      std::sort(same.begin(), same.end());
      std::vector<int> ranks;
      for (const auto& [k, r] : same) {
        if (r == rank_) place = static_cast<int>(ranks.size());
        ranks.push_back(r);
      }
      part = group_->part(color, ranks);
    });
    return part ? std::make_unique<ThreadTransport>(ctx_, part, place) : nullptr;
  }

 private:
  CommPost post_of(const CommCall& call) const {
    CommPost post;
    post.title = std::string(name_of(call.what));
    if (!call.subject.empty()) post.title += " of " + call.subject;
    post.text = call.text();
    post.in = call.in;
    post.out = call.out;
    post.ready = ready_;
    post.done = done_;
    return post;
  }

  // All ranks publish their memory, run `share` (which may touch every rank's), and wait until all have
  // finished. Events are recorded again only after a rendezvous that follows every wait on them.
  template <class Share>
  void exchange(const CommPost& post, Stream stream, Share share) {
    if (post.ready.handle != nullptr) backend_.record(ready_, stream);
    group_->open(rank_, post);
    guarded(stream, [&] {
      for_each_event(stream, &CommPost::ready);
      share();
      if (post.done.handle != nullptr) backend_.record(done_, stream);
      group_->close(rank_, post);
    });
    const OnExit left([&] { group_->leave(rank_); });
    for_each_event(stream, &CommPost::done);
  }
  void for_each_event(Stream stream, Event CommPost::* event) {
    for (int r = 0; r < world(); ++r) {
      if ((group_->post(r).*event).handle != nullptr) backend_.wait(stream, group_->post(r).*event);
    }
  }

  // What this rank has queued may touch memory that its owner frees once all have left.
  template <class Work>
  void guarded(Stream stream, Work work) {
    try {
      work();
    } catch (const std::exception& e) {
      try {
        backend_.synchronize(stream);
      } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): a lost device reads nothing
      }
      group_->abandon(rank_, words_of(e));
      throw;
    }
  }

  // Rank r alone touches everybody's chunk r, so it can sum in place and hand the sum at once to all `takers`
  // from `first_taker` on.
  void reduce_a_part(const CommCall& call, Stream stream, int first_taker, int takers) {
    const int64_t chunk = (call.count + world() - 1) / world();
    const int64_t first = std::min(call.count, chunk * rank_);
    const RankMemory src = of_all(&CommPost::in, first, call.dtype),
                     all = of_all(&CommPost::out, first, call.dtype);
    RankMemory dst;
    dst.count = takers;
    std::copy_n(all.data + first_taker, takers, dst.data);
    reduce_ranks(backend_, stream, dst, src, std::min(call.count, first + chunk) - first, call.dtype);
  }
  void reduce_mine(const CommCall& call, Stream stream) {
    const int64_t chunk = call.count / world();
    RankMemory dst;
    dst.count = 1;
    dst.data[0] = call.out;
    reduce_ranks(backend_, stream, dst, of_all(&CommPost::in, chunk * rank_, call.dtype), chunk, call.dtype);
  }
  RankMemory of_all(std::byte* CommPost::* memory, int64_t first, DType dtype) const {
    RankMemory m;
    m.count = world();
    for (int r = 0; r < world(); ++r)
      m.data[r] = group_->post(r).*memory + first * static_cast<int64_t>(size_of(dtype));
    return m;
  }

  void gather(const CommCall& call, Stream stream) {
    for (int r = 0; r < world(); ++r)
      copy(call.out + static_cast<int64_t>(call.bytes().value) * r, r, call, stream);
  }
  void copy(std::byte* to, int from, const CommCall& call, Stream stream) {
    const std::byte* const src = group_->post(from).in;
    if (call.count == 0 || to == src) return;  // in place: others may be reading it
    backend_.copy_within(to, src, call.bytes().value, stream);
  }

  // send, recv or both. What is offered must be collected before it may be freed.
  void pass(const CommCall& call, Stream stream) {
    const bool sends = call.what != Collective::recv, takes = call.what != Collective::send;
    const int from = call.what == Collective::recv ? call.peer : call.source;
    CommPost post = post_of(call);
    CommCall parcel = call;  // sender and receiver must agree on size, dtype and subject, not on the word
    parcel.what = Collective::send;
    guarded(stream, [&] {
      if (sends) {
        post.text = parcel.text();
        if (post.ready.handle != nullptr) backend_.record(ready_, stream);
        group_->offer(rank_, call.peer, post);
      }
      if (takes) {
        parcel.peer = rank_;
        if (call.what == Collective::send_recv) parcel.count = call.take;
        post.text = parcel.text();
        const CommPost theirs = group_->take(rank_, from, post);
        if (theirs.ready.handle != nullptr) backend_.wait(stream, theirs.ready);
        if (parcel.count != 0) backend_.copy_within(call.out, theirs.in, parcel.bytes().value, stream);
        if (post.done.handle != nullptr) backend_.record(done_, stream);
        group_->give_back(rank_, from, done_);
      }
      if (sends) {
        const Event done = group_->collect(rank_, call.peer);
        const OnExit left([&] { group_->leave(rank_); });
        if (done.handle != nullptr) backend_.wait(stream, done);
      }
    });
  }

  RankContext& ctx_;
  Backend& backend_;
  std::shared_ptr<ThreadGroup> group_;
  int rank_;
  OwnedEvent ready_, done_;
};

}  // namespace

std::unique_ptr<Transport> make_thread_transport(RankContext& ctx, std::shared_ptr<ThreadGroup> group,
                                                 int rank) {
  return std::make_unique<ThreadTransport>(ctx, std::move(group), rank);
}

}  // namespace kiln
