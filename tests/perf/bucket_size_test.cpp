#include "perf/comm/bucket_size.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"

namespace kiln {
namespace {

// s = 100 MB, w = 10 GB/s, o = 100 us: n = sqrt(1e8 / (1e10 * 1e-4)) = 10 buckets of 10 MB, 1 ms for the last
// and 1 ms for the calls.
TEST(BucketSize, IsTheRootOfBytesBandwidthAndOverhead) {
  const BestBucket b = best_bucket(1e8, {1e10, 1e-4});
  EXPECT_NEAR(b.bytes, 1e7, 1e-3);
  EXPECT_NEAR(b.n, 10, 1e-9);
  EXPECT_NEAR(b.overhead, 2e-3, 1e-12);
  for (const double n : {5.0, 9.0, 11.0, 20.0}) EXPECT_GT(bucket_overhead(1e8, n, {1e10, 1e-4}), b.overhead);
}

TEST(BucketSize, OneBucketWhereACallCostsMoreThanTheBytes) {
  const BestBucket b = best_bucket(1e6, {1e10, 1e-3});
  EXPECT_EQ(b.bytes, 1e6);
  EXPECT_EQ(b.n, 1);
  EXPECT_EQ(best_bucket(1e6, sum_cost(LinkModel{0, 1e9}, 1)).bytes, 1e6);  // a rank alone
  EXPECT_EQ(best_bucket(1e6, sum_cost(LinkModel{0, 1e9}, 2)).bytes, 0);    // calls cost nothing
}

// The ring of 4 ranks: 6 steps, each with the latency and a quarter of the bytes.
TEST(BucketSize, CostOfAModelledLinkIsTheRings) {
  const SumCost c = sum_cost(LinkModel{20e-6, 3e9}, 4);
  EXPECT_NEAR(c.o, 120e-6, 1e-12);
  EXPECT_NEAR(c.w, 2e9, 1e-3);
  CommCall call;
  call.what = Collective::all_reduce;
  call.dtype = DType::u8;
  call.count = 4000000;
  EXPECT_NEAR(link_seconds({20e-6, 3e9}, CommAlgorithm::direct, call, 4), c.o + 4e6 / c.w, 1e-12);
  EXPECT_TRUE(c.latency_bound(2e6, 10));
  EXPECT_FALSE(c.latency_bound(2e6, 8));  // 0.96 ms of calls, 1 ms of bytes
}

TEST(BucketSize, StoredRowsOfTheSameRanksAreFitted) {
  const auto row = [](const char* transport, int ranks, double bytes, double ms) {
    return Json{{"command", "bench allreduce"},
                {"gate", "passed"},
                {"transport", transport},
                {"device", "cpu"},
                {"ranks", ranks},
                {"algorithm", "direct"},
                {"link", "local"},
                {"bytes", bytes},
                {"p50_ms", ms}};
  };
  // 1 ms a call and 1 GB/s.
  std::vector<Json> rows = {row("threads", 2, 1e6, 2), row("threads", 2, 1e7, 11), row("threads", 4, 1e6, 50),
                            row("mpi", 2, 1e6, 70)};
  const auto fit = stored_link(rows, "threads", "cpu", 2);
  ASSERT_TRUE(fit);
  EXPECT_NEAR(fit->alpha, 1e-3, 1e-9);
  EXPECT_NEAR(sum_cost(*fit).w, 1e9, 1);
  EXPECT_FALSE(stored_link(rows, "threads", "cpu", 4));  // one size is no line
  EXPECT_FALSE(stored_link(rows, "threads", "cuda:0", 2));
  rows[1]["p50_ms"] = 20.0;
  EXPECT_NEAR(sum_cost(*stored_link(rows, "threads", "cpu", 2)).w, 5e8, 1);
}

}  // namespace
}  // namespace kiln
