#include "dist/comm/ring_transport.h"

#include <algorithm>

#include "base/error.h"
#include "dist/comm/reduce_ranks.h"

namespace kiln {
namespace {

constexpr std::size_t kAlign = 64;

// A range of elements, as its place in bytes and its count.
struct Piece {
  std::byte* data = nullptr;
  int64_t count = 0;
};

// Part `index` of `count` elements cut into `world` parts of equal size, the last ones shorter or empty.
Piece part_of(std::byte* data, int64_t count, DType dtype, int world, int index) {
  const int64_t each = (count + world - 1) / world;
  const int64_t first = std::min(count, each * index), last = std::min(count, first + each);
  return {data + first * static_cast<int64_t>(size_of(dtype)), last - first};
}

std::size_t padded_part(const CommCall& call, int world) {
  const int64_t each = (call.count + world - 1) / world;
  return round_up(static_cast<std::size_t>(each) * size_of(call.dtype), kAlign);
}

class RingTransport final : public Transport {
 public:
  RingTransport(std::unique_ptr<Transport> inner, Backend& backend, CommAlgorithm algorithm)
      : inner_(std::move(inner)), backend_(backend), algorithm_(algorithm) {
    if (algorithm == CommAlgorithm::alternate && world() > kMaxThreadRanks)
      throw Error(cat("the alternate all-reduce holds every rank's tensor: at most ", kMaxThreadRanks,
                      " ranks, not ", world()),
                  "use the ring");
  }

  std::string_view name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int world() const override { return inner_->world(); }
  // Not of rings: the communicator that gets it makes it one.
  std::unique_ptr<Transport> split(int color, int key) override { return inner_->split(color, key); }
  void abort(const std::string& why) override { inner_->abort(why); }
  std::optional<std::chrono::steady_clock::time_point> all_arrived() const override { return arrived_; }
  Bytes scratch(const CommCall& call) const override {
    return by_hand(call) ? ring_scratch(algorithm_, call, world()) : inner_->scratch(call);
  }

  void run(const CommCall& call, Stream stream) override {
    if (!by_hand(call)) {
      inner_->run(call, stream);
      arrived_ = inner_->all_arrived();
      return;
    }
    agree(call, stream);
    switch (call.what) {
      case Collective::all_reduce:
        return algorithm_ == CommAlgorithm::alternate ? pass_round(call, stream) : all_reduce(call, stream);
      case Collective::reduce_scatter:
        return reduce_scatter(call, stream);
      case Collective::all_gather:
        return all_gather(call, stream);
      case Collective::reduce:
        return reduce(call, stream);
      default:
        return broadcast(call, stream);
    }
  }

 private:
  bool by_hand(const CommCall& call) const {
    if (world() < 2) return false;
    if (algorithm_ == CommAlgorithm::alternate) return call.what == Collective::all_reduce;
    return call.what == Collective::all_reduce || call.what == Collective::reduce_scatter ||
           call.what == Collective::all_gather || call.what == Collective::reduce ||
           call.what == Collective::broadcast;
  }

  // Neighbours would only notice a disagreement with each other, and ranks that differ in size might not.
  void agree(const CommCall& call, Stream stream) {
    CommCall rendezvous;
    rendezvous.subject = call.text();
    inner_->run(rendezvous, stream);
    arrived_ = inner_->all_arrived();
  }

  int left() const { return around(rank() - 1); }
  int right() const { return around(rank() + 1); }
  int around(int r) const { return ((r % world()) + world()) % world(); }

  // Sends one piece to the right while another comes from the left. Empty pieces are empty at both ends, and
  // are not sent.
  void step(const CommCall& call, Stream stream, Piece to_right, Piece from_left) {
    CommCall c;
    c.subject = call.subject;
    c.dtype = call.dtype;
    c.in = to_right.data;
    c.out = from_left.data;
    c.peer = right();
    c.source = left();
    if (to_right.count == 0 && from_left.count == 0) return;
    if (from_left.count == 0) {
      c.what = Collective::send;
      c.count = to_right.count;
    } else if (to_right.count == 0) {
      c.what = Collective::recv;
      c.peer = left();
      c.count = from_left.count;
    } else {
      c.what = Collective::send_recv;
      c.count = to_right.count;
      c.take = from_left.count;
    }
    inner_->run(c, stream);
  }

  // to = received + mine; any of them may be the same memory.
  void add(std::byte* to, std::byte* received, std::byte* mine, int64_t count, DType dtype, Stream stream) {
    RankMemory dst, src;
    dst.count = 1;
    dst.data[0] = to;
    src.count = 2;
    src.data[0] = received;
    src.data[1] = mine;
    reduce_ranks(backend_, stream, dst, src, count, dtype);
  }

  // Part p starts at rank p+1 and is complete at rank p after N-1 steps.
  void all_reduce(const CommCall& call, Stream stream) {
    const int n = world();
    auto part = [&](int index) { return part_of(call.out, call.count, call.dtype, n, around(index)); };
    for (int s = 0; s < n - 1; ++s) {
      const Piece mine = part(rank() - 2 - s);
      step(call, stream, part(rank() - 1 - s), {call.scratch, mine.count});
      add(mine.data, call.scratch, mine.data, mine.count, call.dtype, stream);
    }
    for (int s = 0; s < n - 1; ++s) step(call, stream, part(rank() - s), part(rank() - 1 - s));
  }

  // The source stays as it is: partial sums alternate between two pieces of scratch.
  void reduce_scatter(const CommCall& call, Stream stream) {
    const int n = world();
    auto part = [&](int index) { return part_of(call.in, call.count, call.dtype, n, around(index)); };
    Piece sending = part(rank() - 1);
    std::byte* free[2] = {call.scratch, call.scratch + padded_part(call, n)};
    for (int s = 0; s < n - 1; ++s) {
      const Piece mine = part(rank() - 2 - s);
      std::byte* const received = free[s % 2];
      step(call, stream, sending, {received, mine.count});
      std::byte* const to = s == n - 2 ? call.out : received;
      add(to, received, mine.data, mine.count, call.dtype, stream);
      sending = {received, mine.count};
    }
  }

  void all_gather(const CommCall& call, Stream stream) {
    const int n = world();
    auto part = [&](int index) { return part_of(call.out, call.count * n, call.dtype, n, around(index)); };
    if (part(rank()).data != call.in)
      backend_.copy_within(part(rank()).data, call.in, call.bytes().value, stream);
    for (int s = 0; s < n - 1; ++s) step(call, stream, part(rank() - s), part(rank() - 1 - s));
  }

  // A chain from the root to its left neighbour. The rank at place d sends piece k in step k + d.
  void broadcast(const CommCall& call, Stream stream) {
    const int n = world(), place = around(rank() - call.peer);
    auto piece = [&](int k) {
      return k < 0 || k >= n ? Piece{} : part_of(call.out, call.count, call.dtype, n, k);
    };
    for (int s = 0; s < 2 * (n - 1); ++s) {
      step(call, stream, place < n - 1 ? piece(s - place) : Piece{},
           place > 0 ? piece(s - place + 1) : Piece{});
    }
  }

  // A chain that begins behind the root and ends at it. The rank at place d adds its own to piece k in step
  // k + d - 1 and sends it on in step k + d.
  void reduce(const CommCall& call, Stream stream) {
    const int n = world(), place = around(rank() - call.peer - 1);
    auto piece = [&](int k) {
      return k < 0 || k >= n ? Piece{} : part_of(call.out, call.count, call.dtype, n, k);
    };
    for (int s = 0; s < 2 * (n - 1); ++s) {
      const Piece mine = place > 0 ? piece(s - place + 1) : Piece{};
      step(call, stream, place < n - 1 ? piece(s - place) : Piece{}, {call.scratch, mine.count});
      if (mine.count > 0) add(mine.data, call.scratch, mine.data, mine.count, call.dtype, stream);
    }
  }

  // Every rank's tensor visits every rank. They are kept and summed at the end: added as they come, each
  // rank would add them in another order, and get other bits.
  void pass_round(const CommCall& call, Stream stream) {
    const int n = world();
    const std::size_t apart = round_up(call.bytes().value, kAlign);
    RankMemory all;
    all.count = n;
    all.data[rank()] = call.in;
    for (int s = 0; s < n - 1; ++s) {
      const int from = around(rank() - 1 - s);
      all.data[from] = call.scratch + apart * static_cast<std::size_t>(s);
      step(call, stream, {all.data[around(rank() - s)], call.count}, {all.data[from], call.count});
    }
    RankMemory dst;
    dst.count = 1;
    dst.data[0] = call.out;
    reduce_ranks(backend_, stream, dst, all, call.count, call.dtype);
  }

  std::unique_ptr<Transport> inner_;
  Backend& backend_;
  CommAlgorithm algorithm_;
  std::optional<std::chrono::steady_clock::time_point> arrived_;
};

}  // namespace

Bytes ring_scratch(CommAlgorithm algorithm, const CommCall& call, int world) {
  if (world < 2 || algorithm == CommAlgorithm::direct) return {};
  if (algorithm == CommAlgorithm::alternate) {
    if (call.what != Collective::all_reduce) return {};
    return {round_up(call.bytes().value, kAlign) * static_cast<std::size_t>(world - 1)};
  }
  if (call.what == Collective::all_reduce || call.what == Collective::reduce)
    return {padded_part(call, world)};
  if (call.what == Collective::reduce_scatter) return {2 * padded_part(call, world)};
  return {};
}

std::unique_ptr<Transport> make_ring_transport(std::unique_ptr<Transport> inner, Backend& backend,
                                               CommAlgorithm algorithm) {
  return std::make_unique<RingTransport>(std::move(inner), backend, algorithm);
}

}  // namespace kiln
