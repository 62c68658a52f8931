// Ranks that fail in awkward places: before they run, or while others read their memory.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <latch>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "dist/comm/threads/thread_group.h"
#include "support/watched_backend.h"

namespace kiln {
namespace {

RankOptions one_thread() {
  RankOptions o;
  o.threads = 1;
  return o;
}

TEST(CommFailures, AThreadThatDoesNotStartIsAnErrorAndTheOthersEnd) {
  for (int fails : {0, 2}) {
    std::mutex mutex;
    std::vector<std::string> told;
    int started = 0;
    const StartThread start = [&](std::function<void()> work) {
      if (started == fails)
        throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
      ++started;
      return std::thread(std::move(work));
    };
    try {
      run_thread_ranks(
          4, one_thread(),
          [&](RankContext& ctx, Communicator& comm) {
            try {
              comm.all_reduce(ctx, ctx.zeros({8}, DType::f32)).wait(ctx);  // one never comes
            } catch (const Error& e) {
              const std::lock_guard lock(mutex);
              told.emplace_back(e.what());
              throw;
            }
          },
          {.timeout = std::chrono::hours(1)}, start);
      FAIL() << "nothing was thrown";
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()).find(cat("the thread of rank ", fails, " of 4 did not start: ")), 0U)
          << e.what();
      EXPECT_FALSE(e.hint().empty());
    }
    EXPECT_EQ(told, std::vector<std::string>(static_cast<std::size_t>(fails),
                                             cat("rank ", fails, " failed: its thread did not start")));
  }
}

// Rank 1 is slow at its share of an all_gather. Rank 0 loses patience, and must not free what rank 1 reads.
struct SlowReader {
  std::latch patience_lost{1};
  std::atomic<bool> rank_0_has_left{false};
  std::atomic<bool> read_after_free{false};
};

class SlowBackend final : public WatchedBackend {
 public:
  explicit SlowBackend(SlowReader& state) : state_(state) {}
  void copy_within(void* dst, const void* src, std::size_t bytes, Stream s) override {
    if (rank == 1 && is_comm(s)) {
      state_.patience_lost.wait();
      if (state_.rank_0_has_left) state_.read_after_free = true;
    }
    WatchedBackend::copy_within(dst, src, bytes, s);
  }
  using WatchedBackend::synchronize;
  void synchronize(Stream s) override {  // what a rank does first when it gives up
    if (rank == 0 && armed && is_comm(s)) {
      armed = false;
      state_.patience_lost.count_down();
    }
  }
  int rank = 0;  // these two are set before the first call, which hands them over
  std::atomic<bool> armed{false};

 private:
  SlowReader& state_;
};

TEST(CommFailures, ATimeOutWhileAnotherRankReadsFreesNothingUnderIt) {
  SlowReader state;
  RankOptions options = watched(AllocMode::raw);
  options.backend = [&] { return std::make_unique<SlowBackend>(state); };
  std::barrier both_here(2);  // the time limit is for the second barrier, not for the start of threads
  std::array<std::string, 2> told;
  std::string rethrown;
  try {
    run_thread_ranks(2, options,
                     [&](RankContext& ctx, Communicator& comm) {
                       auto& backend = static_cast<SlowBackend&>(ctx.backend());
                       backend.rank = ctx.rank();
                       backend.armed = true;
                       try {
                         const Tensor shard = ctx.zeros({4}, DType::f32), full = ctx.zeros({8}, DType::f32);
                         both_here.arrive_and_wait();
                         comm.all_gather(ctx, shard, full).wait(ctx);
                       } catch (const Error& e) {
                         if (ctx.rank() == 0) state.rank_0_has_left = true;  // its tensors are gone
                         told[ctx.rank()] = e.what();
                         throw;
                       }
                     },
                     {.timeout = std::chrono::seconds(1)});
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    rethrown = e.what();
  }
  EXPECT_FALSE(state.read_after_free);
  for (const std::string& m : {told[0], told[1], rethrown})
    EXPECT_EQ(m, "[all_gather] rank 0 waited 1000 ms; not done: rank 1");
}

// Rank 1 throws in the middle of its share; the error itself is rethrown and no rank waits for the time
// limit.
class FailingBackend final : public WatchedBackend {
 public:
  void copy_within(void* dst, const void* src, std::size_t bytes, Stream s) override {
    if (fails && is_comm(s)) throw std::out_of_range("planted");
    WatchedBackend::copy_within(dst, src, bytes, s);
  }
  bool fails = false;
};

TEST(CommFailures, ARankThatThrowsInTheMiddleOfACollectiveEndsAll) {
  for (int i = 0; i < 20; ++i) {
    std::array<std::string, 3> told;
    EXPECT_THROW(run_thread_ranks(3, watched<FailingBackend>(),
                                  [&](RankContext& ctx, Communicator& comm) {
                                    static_cast<FailingBackend&>(ctx.backend()).fails = ctx.rank() == 1;
                                    const Tensor shard = ctx.zeros({4}, DType::f32),
                                                 full = ctx.zeros({12}, DType::f32);
                                    try {
                                      comm.all_gather(ctx, shard, full).wait(ctx);
                                    } catch (const std::exception& e) {
                                      told[ctx.rank()] = e.what();
                                      throw;
                                    }
                                  },
                                  {.timeout = std::chrono::hours(1)}),
                 std::out_of_range);
    EXPECT_EQ(told,
              (std::array<std::string, 3>{"rank 1 failed: planted", "planted", "rank 1 failed: planted"}));
  }
}

TEST(CommFailures, RanksThatSumDifferentThingsOfTheSameSizeAreTold) {
  std::array<std::string, 2> told;
  EXPECT_THROW(
      run_thread_ranks(
          2, one_thread(),
          [&](RankContext& ctx, Communicator& comm) {
            try {
              comm.all_reduce(ctx, ctx.zeros({8}, DType::f32), ctx.rank() == 0 ? "a" : "b").wait(ctx);
            } catch (const Error& e) {
              told[ctx.rank()] = e.what();
              throw;
            }
          }),
      Error);
  for (const std::string& m : told)
    EXPECT_EQ(m,
              "ranks disagree: rank 0 calls all_reduce of 8 fp32 (a), rank 1 calls all_reduce of 8 fp32 (b)");
}

}  // namespace
}  // namespace kiln
