// What a collective tells the allocator: memory that the communication stream still touches must not begin
// its next life before that stream is done. On the CPU everything is done at once, so only a watched backend
// can tell.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "dist/comm/thread_group.h"
#include "support/watched_backend.h"

namespace kiln {
namespace {

using Log = std::vector<std::string>;
constexpr int64_t kShard = 1000, kFull = 2 * kShard;

// Two ranks run `collective` on a shard and a full tensor, then drop one of them without waiting.
void expect_fenced(
    const std::function<void(RankContext&, Communicator&, const Tensor&, const Tensor&)>& collective,
    bool drop_shard, bool drop_full) {
  run_thread_ranks(2, watched(), [&](RankContext& ctx, Communicator& comm) {
    auto& backend = static_cast<WatchedBackend&>(ctx.backend());
    Tensor shard = ctx.zeros({kShard}, DType::f32), full = ctx.zeros({kFull}, DType::f32);
    collective(ctx, comm, shard, full);
    for (Tensor* t : {drop_shard ? &shard : nullptr, drop_full ? &full : nullptr}) {
      if (t == nullptr) continue;
      backend.take_log();
      const Shape shape = t->shape();
      const std::byte* const address = t->raw();
      *t = {};
      const Log freed = backend.take_log();
      ASSERT_EQ(freed.size(), 1U) << "freed without a fence";
      EXPECT_EQ(freed[0].find("record "), 0U) << freed[0];
      EXPECT_NE(freed[0].find(" on comm"), std::string::npos) << freed[0];
      const std::string event = freed[0].substr(7, freed[0].find(" on comm") - 7);
      *t = ctx.empty(shape, DType::f32);
      ASSERT_EQ(t->raw(), address) << "not the same memory: this shows nothing";
      const Log reused = backend.take_log();
      EXPECT_NE(std::find(reused.begin(), reused.end(), "compute waits for " + event), reused.end());
    }
  });
}

TEST(CommStreams, AllGatherFencesBothTensors) {
  expect_fenced([](auto& ctx, auto& comm, const Tensor& shard,
                   const Tensor& full) { comm.all_gather(ctx, shard, full); },
                true, true);
}

TEST(CommStreams, ReduceScatterFencesBothTensors) {
  expect_fenced([](auto& ctx, auto& comm, const Tensor& shard,
                   const Tensor& full) { comm.reduce_scatter(ctx, full, shard); },
                true, true);
}

TEST(CommStreams, AllReduceFencesItsTensor) {
  expect_fenced([](auto& ctx, auto& comm, const Tensor&, const Tensor& full) { comm.all_reduce(ctx, full); },
                false, true);
}

// A rank reads when all have written, and goes on when all have read it: else the next op of a fast rank
// would write over what a slow one still reads.
TEST(CommStreams, WaitsForEveryRankBeforeReadingAndAfter) {
  run_thread_ranks(2, watched(), [](RankContext& ctx, Communicator& comm) {
    auto& backend = static_cast<WatchedBackend&>(ctx.backend());
    const Tensor shard = ctx.zeros({kShard}, DType::f32), full = ctx.zeros({kFull}, DType::f32);
    backend.take_log();
    comm.all_gather(ctx, shard, full);
    const Log log = backend.take_log();
    auto event = [&](std::size_t at) { return log[at].substr(7, log[at].find(" on ") - 7); };
    ASSERT_EQ(log.size(), 9U);
    // Both ranks number their events alike.
    EXPECT_EQ(log, (Log{"record " + event(0) + " on compute", "comm waits for " + event(0),
                        "record " + event(2) + " on comm", "comm waits for " + event(2),
                        "comm waits for " + event(2), "record " + event(5) + " on comm",
                        "comm waits for " + event(5), "comm waits for " + event(5),
                        "record " + event(8) + " on comm"}));
  });
}

// The partial sum that all_reduce takes for itself is free when it returns, and still being read.
TEST(CommStreams, AllReduceFencesItsScratch) {
  run_thread_ranks(2, watched(), [](RankContext& ctx, Communicator& comm) {
    auto& backend = static_cast<WatchedBackend&>(ctx.backend());
    const Tensor t = ctx.zeros({kFull}, DType::f32);
    backend.take_log();
    comm.all_reduce(ctx, t);
    const std::string last = backend.take_log().back();  // after the record that ends the collective
    EXPECT_EQ(last.find("record "), 0U) << last;
    const Tensor next = ctx.empty({kShard}, DType::f32);
    const std::string event = last.substr(7, last.find(" on comm") - 7);
    EXPECT_EQ(backend.take_log(), (Log{"compute waits for " + event}));
  });
}

}  // namespace
}  // namespace kiln
