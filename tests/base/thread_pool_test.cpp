#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace kiln {
namespace {

using Chunks = std::vector<std::pair<int64_t, int64_t>>;

Chunks chunks_of(ThreadPool& pool, int64_t count, int64_t grain) {
  std::mutex mutex;
  Chunks chunks;
  pool.parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    std::lock_guard lock(mutex);
    chunks.emplace_back(begin, end);
  });
  std::sort(chunks.begin(), chunks.end());
  return chunks;
}

TEST(ThreadPool, RunsEveryIndexOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t count : {1, 2, 7, 64, 1000, 10007}) {
      for (int64_t grain : {1, 3, 64, 20000}) {
        // Plain ints: if two threads had the same index, ThreadSanitizer would say so.
        std::vector<int> seen(static_cast<std::size_t>(count), 0);
        pool.parallel_for(count, grain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
        });
        ASSERT_EQ(std::count(seen.begin(), seen.end(), 1), count) << threads << " threads, grain " << grain;
      }
    }
  }
}

TEST(ThreadPool, ChunkBoundsDependOnTheProblemAlone) {
  ThreadPool one(1);
  for (int64_t count : {1, 9, 10, 11, 100, 1001}) {
    for (int64_t grain : {1, 10, 64}) {
      Chunks wanted;
      for (int64_t b = 0; b < count; b += grain) wanted.emplace_back(b, std::min(count, b + grain));
      EXPECT_EQ(chunks_of(one, count, grain), wanted);
      for (int threads : {2, 3, 5}) {
        ThreadPool pool(threads);
        EXPECT_EQ(chunks_of(pool, count, grain), wanted) << threads << " threads";
      }
    }
  }
}

TEST(ThreadPool, NothingToDoCallsNothing) {
  ThreadPool pool(2);
  EXPECT_TRUE(chunks_of(pool, 0, 10).empty());
  EXPECT_TRUE(chunks_of(pool, -5, 10).empty());
}

TEST(ThreadPool, RefusesAGrainThatIsNotPositive) {
  for (int threads : {1, 2}) {
    ThreadPool pool(threads);
    EXPECT_THROW(chunks_of(pool, 10, 0), Error);
    EXPECT_THROW(chunks_of(pool, 10, -1), Error);
  }
}

TEST(ThreadPool, AnExceptionIsRethrownAndThePoolStaysUsable) {
  for (int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (int64_t bad : {0, 5, 99}) {
      std::atomic<int> ran{0};
      try {
        pool.parallel_for(100, 1, [&](int64_t begin, int64_t) {
          ++ran;
          if (begin == bad) throw std::runtime_error("chunk " + std::to_string(begin));
        });
        FAIL() << "nothing was thrown";
      } catch (const std::runtime_error& e) {
        EXPECT_EQ(e.what(), "chunk " + std::to_string(bad));
      }
      EXPECT_LE(ran.load(), 100);
      EXPECT_EQ(chunks_of(pool, 100, 7).size(), 15U);
    }
  }
}

TEST(ThreadPool, WhenEveryChunkThrowsOneOfThemArrives) {
  ThreadPool pool(4);
  for (int i = 0; i < 200; ++i) {
    EXPECT_THROW(pool.parallel_for(64, 1, [](int64_t, int64_t) { throw std::out_of_range("all"); }),
                 std::out_of_range);
  }
}

TEST(ThreadPool, ManySmallJobsOneAfterAnother) {
  ThreadPool pool(3);
  std::vector<int64_t> partial(4);
  for (int64_t job = 0; job < 20000; ++job) {
    pool.parallel_for(4, 1, [&](int64_t b, int64_t) { partial[static_cast<std::size_t>(b)] = job + b; });
    // A job's writes are visible when parallel_for returns.
    ASSERT_EQ(std::accumulate(partial.begin(), partial.end(), int64_t{0}), 4 * job + 6);
  }
}

// Longer than the pool waits awake: it must have gone to sleep and still not return early.
TEST(ThreadPool, WaitsForAChunkThatTakesLong) {
  ThreadPool pool(2);
  const auto caller = std::this_thread::get_id();
  for (int i = 0; i < 5; ++i) {
    std::atomic<bool> begun{false}, ended{false};
    pool.parallel_for(2, 1, [&](int64_t, int64_t) {
      if (std::this_thread::get_id() == caller) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (!begun && std::chrono::steady_clock::now() < end) std::this_thread::yield();
        return;
      }
      begun = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      ended = true;
    });
    EXPECT_TRUE(ended) << (begun ? "" : "the worker never came");
  }
}

// A worker may move off the core of the thread that woke it; it must not stay tied to another.
TEST(ThreadPool, WorkersMayRunWhereTheProcessMay) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  std::atomic<int> tied{0};
  for (int i = 0; i < 100; ++i) {  // threads that have just started are often on one core
    ThreadPool pool(3);
    for (int job = 0; job < 20; ++job) {
      pool.parallel_for(3, 1, [&](int64_t, int64_t) {
        cpu_set_t mine;
        if (sched_getaffinity(0, sizeof mine, &mine) != 0 || !CPU_EQUAL(&mine, &all)) ++tied;
        std::this_thread::sleep_for(std::chrono::microseconds(50));  // so that the others get a chunk
      });
    }
  }
  EXPECT_EQ(tied, 0);
}

TEST(ThreadPool, ScratchIsAlignedAndPrivate) {
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::atomic<int> wrong{0};
    for (std::size_t bytes : {1, 100, 70000, 64}) {
      pool.parallel_for(50, 1, [&](int64_t begin, int64_t) {
        std::byte* p = pool.scratch(bytes);
        if (reinterpret_cast<std::uintptr_t>(p) % 64 != 0) ++wrong;
        std::memset(p, static_cast<int>(begin), bytes);
        std::this_thread::yield();  // another thread's chunk may begin here
        wrong += static_cast<int>(
            std::count_if(p, p + bytes, [&](std::byte b) { return b != static_cast<std::byte>(begin); }));
      });
    }
    EXPECT_EQ(wrong, 0);
  }
}

TEST(ThreadPool, PoolsOfTwoRanksWorkSideBySide) {
  auto rank = [](int64_t seed, int64_t* result) {
    ThreadPool pool(3);
    std::vector<int64_t> values(1000);
    for (int step = 0; step < 200; ++step) {
      pool.parallel_for(1000, 37, [&](int64_t b, int64_t e) {
        for (int64_t i = b; i < e; ++i) values[static_cast<std::size_t>(i)] += seed * i;
      });
    }
    *result = std::accumulate(values.begin(), values.end(), int64_t{0});
  };
  int64_t a = 0, b = 0;
  std::thread other(rank, 3, &b);
  rank(1, &a);
  other.join();
  EXPECT_EQ(a, int64_t{200} * 999 * 500);
  EXPECT_EQ(b, 3 * a);
}

TEST(ThreadPool, StartsAndStopsWithoutWork) {
  for (int i = 0; i < 100; ++i) {
    ThreadPool pool(4);
    EXPECT_EQ(pool.threads(), 4);
  }
  EXPECT_GE(ThreadPool::available_threads(), 1);
}

}  // namespace
}  // namespace kiln
