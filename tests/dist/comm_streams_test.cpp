// What a call does to memory and streams: memory that the communicator's stream still touches must not begin
// its next life before compute follows that stream. On the CPU there is nothing to follow, so only a watched
// backend can tell.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "dist/comm/threads/thread_group.h"
#include "support/watched_backend.h"

namespace kiln {
namespace {

using Log = std::vector<std::string>;
constexpr int64_t kShard = 1000, kFull = 2 * kShard;

using Call = std::function<CommHandle(RankContext&, Communicator&, const Tensor&, const Tensor&)>;

// Two ranks make a call on a shard and a full tensor and drop one of them: its memory is not handed out again
// before the call is waited for, and then only behind compute's wait.
void expect_held(const Call& call, bool drop_shard) {
  run_thread_ranks(2, watched(), [&](RankContext& ctx, Communicator& comm) {
    auto& backend = static_cast<WatchedBackend&>(ctx.backend());
    Tensor shard = ctx.zeros({kShard}, DType::f32), full = ctx.zeros({kFull}, DType::f32);
    const CommHandle h = call(ctx, comm, shard, full);
    Tensor& dropped = drop_shard ? shard : full;
    const Shape shape = dropped.shape();
    const std::byte* const address = dropped.raw();
    dropped = {};
    const Tensor meanwhile = ctx.empty(shape, DType::f32);
    EXPECT_NE(meanwhile.raw(), address) << "handed out while a call uses it";
    while (!h.done()) std::this_thread::yield();
    backend.take_log();
    h.wait(ctx);
    const Log log = backend.take_log();
    ASSERT_EQ(log.size(), 1U);
    EXPECT_EQ(log[0].find("compute waits for "), 0U) << log[0];
    const Tensor after = ctx.empty(shape, DType::f32);
    EXPECT_EQ(after.raw(), address) << "not given back by the wait";
    EXPECT_EQ(backend.take_log(), Log{}) << "compute follows already";
  });
}

TEST(CommStreams, AllGatherHoldsBothTensors) {
  for (bool drop_shard : {true, false}) {
    expect_held([](auto& ctx, auto& comm, const Tensor& shard,
                   const Tensor& full) { return comm.all_gather(ctx, shard, full); },
                drop_shard);
  }
}

TEST(CommStreams, ReduceScatterHoldsBothTensors) {
  for (bool drop_shard : {true, false}) {
    expect_held([](auto& ctx, auto& comm, const Tensor& shard,
                   const Tensor& full) { return comm.reduce_scatter(ctx, full, shard); },
                drop_shard);
  }
}

TEST(CommStreams, AllReduceHoldsItsTensor) {
  expect_held(
      [](auto& ctx, auto& comm, const Tensor&, const Tensor& full) { return comm.all_reduce(ctx, full); },
      false);
}

// A later call's wait is enough: calls end in order.
TEST(CommStreams, AWaitForALaterCallGivesBackTheEarlier) {
  run_thread_ranks(2, watched(), [](RankContext& ctx, Communicator& comm) {
    Tensor a = ctx.zeros({kShard}, DType::f32);
    const Tensor b = ctx.zeros({kShard}, DType::f32);
    const std::byte* const address = a.raw();
    const CommHandle first = comm.all_reduce(ctx, a), second = comm.all_reduce(ctx, b);
    a = {};
    second.wait(ctx);
    EXPECT_TRUE(first.done());
    EXPECT_EQ(ctx.empty({kShard}, DType::f32).raw(), address);
    EXPECT_NO_THROW(first.wait(ctx));
  });
}

// A rank reads when all have written, and continues when all have read it: else the next op of a fast rank
// would write over what a slow one still reads.
TEST(CommStreams, WaitsForEveryRankBeforeReadingAndAfter) {
  run_thread_ranks(2, watched(), [](RankContext& ctx, Communicator& comm) {
    auto& backend = static_cast<WatchedBackend&>(ctx.backend());
    const Tensor shard = ctx.zeros({kShard}, DType::f32), full = ctx.zeros({kFull}, DType::f32);
    backend.take_log();
    comm.all_gather(ctx, shard, full).wait(ctx);
    const Log log = backend.take_log();
    auto event = [&](std::size_t at) { return log[at].substr(7, log[at].find(" on ") - 7); };
    ASSERT_EQ(log.size(), 10U);
    // Both ranks number their events alike.
    EXPECT_EQ(log, (Log{"record " + event(0) + " on compute", "comm waits for " + event(0),
                        "record " + event(2) + " on comm", "comm waits for " + event(2),
                        "comm waits for " + event(2), "record " + event(5) + " on comm",
                        "comm waits for " + event(5), "comm waits for " + event(5),
                        "record " + event(8) + " on comm", "compute waits for " + event(8)}));
  });
}

// Events of all ranks, by handles that no two share: who waits for one that is gone is found out. On a GPU
// that ends the process, and not every time.
class EventKeeper : public WatchedBackend {
 public:
  Event make_event() override {
    const std::lock_guard lock(mutex());
    alive().insert(++last());
    return {reinterpret_cast<void*>(last())};  // NOLINT(performance-no-int-to-ptr)
  }
  void destroy(Event e) override {
    const std::lock_guard lock(mutex());
    alive().erase(number_of(e));
  }
  void record(Event, Stream) override {}
  void wait(Stream, Event e) override {
    std::this_thread::sleep_for(std::chrono::microseconds(number_of(e) % 3 * 700));  // the others go ahead
    const std::lock_guard lock(mutex());
    ++waits();
    EXPECT_TRUE(alive().contains(number_of(e))) << "waits for an event that its owner has destroyed";
  }

  static int& waits() {
    static int count = 0;
    return count;
  }

 private:
  static std::uintptr_t number_of(Event e) { return reinterpret_cast<std::uintptr_t>(e.handle); }
  static std::mutex& mutex() {
    static std::mutex m;
    return m;
  }
  static std::set<std::uintptr_t>& alive() {
    static std::set<std::uintptr_t> events;
    return events;
  }
  static std::uintptr_t& last() {
    static std::uintptr_t number = 0;
    return number;
  }
};

TEST(CommStreams, NobodyWaitsForAnEventOfARankThatIsGone) {
  constexpr int kRounds = 20, kRanks = 3;
  EventKeeper::waits() = 0;
  for (int round = 0; round < kRounds; ++round) {
    run_thread_ranks(kRanks, watched<EventKeeper>(), [](RankContext& ctx, Communicator& comm) {
      const Tensor t = ctx.zeros({8}, DType::f32), from = ctx.zeros({8}, DType::f32);
      comm.all_reduce(ctx, t, "sum").wait(ctx);
      {  // a group that goes at once, its last call a parcel on one side
        const auto part = comm.split(ctx, comm.rank() == 2 ? 1 : 0, comm.rank());
        part->all_reduce(ctx, t, "part").wait(ctx);
        if (part->world() == 2 && part->rank() == 0) part->send(ctx, t, 1, "parcel").wait(ctx);
        if (part->world() == 2 && part->rank() == 1) part->recv(ctx, from, 0, "parcel").wait(ctx);
      }
      comm.all_reduce(ctx, t, "sum again").wait(ctx);
    });
  }
  EXPECT_GE(EventKeeper::waits(), kRounds * kRanks * (kRanks - 1)) << "what nobody waits for shows nothing";
}

}  // namespace
}  // namespace kiln
