#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
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
