// Collectives on two levels of links, by hand; and how deep weights should be gathered ahead.
#include "perf/comm/topology.h"

#include <gtest/gtest.h>

#include "perf/comm/prefetch_depth.h"

namespace kiln {
namespace {

constexpr int64_t kBytes = 64'000'000;

TEST(Topology, InsideANodeIsOneRing) {
  const Topology t{8, {1e-6, 1e9}, {1e-3, 1e6}};
  EXPECT_DOUBLE_EQ(t.seconds(4)("all_reduce", kBytes), 2 * 3 * (1e-6 + kBytes / 4 / 1e9));
  EXPECT_DOUBLE_EQ(t.seconds(4)("all_gather", kBytes / 4), 3 * (1e-6 + kBytes / 4 / 1e9));
  EXPECT_DOUBLE_EQ(t.seconds(1)("all_reduce", kBytes), 0);
}

TEST(Topology, OneRankANodeIsARingOnTheLinksBetween) {
  const Topology t{4, {1e-6, 1e9}, {1e-5, 1e8}};
  EXPECT_EQ(t.group_in_node(3, 4), 1);
  EXPECT_EQ(t.group_in_node(3, 64), 1);
  EXPECT_DOUBLE_EQ(t.seconds(3, 4)("all_reduce", kBytes), 2 * 2 * (1e-5 + kBytes / 3.0 / 1e8));
}

// 16 ranks in nodes of 4: inside 3 steps of a quarter each way, between 2 x 3 steps of a quarter of that.
TEST(Topology, AnAllReduceIsThreeRings) {
  const Topology t{4, {1e-6, 1e9}, {1e-5, 1e8}};
  const double inside = 3 * (1e-6 + kBytes / 4 / 1e9), between = 3 * (1e-5 + kBytes / 16 / 1e8);
  EXPECT_NEAR(t.seconds(16)("all_reduce", kBytes), 2 * inside + 2 * between, 1e-12);
  EXPECT_NEAR(t.seconds(16)("reduce_scatter", kBytes), inside + between, 1e-12);
  EXPECT_NEAR(t.seconds(16)("all_gather", kBytes / 16), inside + between, 1e-12);
}

// With the same bandwidth everywhere and no latency two levels move what one ring does.
TEST(Topology, AlikeLinksAreOneRing) {
  const Topology t{8, {0, 1e9}, {0, 1e9}};
  const CallSeconds ring = seconds_on({0, 1e9}, 32);
  for (const char* what : {"all_reduce", "reduce_scatter"})
    EXPECT_NEAR(t.seconds(32)(what, kBytes), ring(what, kBytes), 1e-12) << what;
  EXPECT_NEAR(t.seconds(32)("all_gather", kBytes / 32), ring("all_gather", kBytes / 32), 1e-12);
}

TEST(Topology, TensorParallelNeighboursLeaveFewerRanksOfAGroupInANode) {
  const Topology t{8, {1e-6, 1e9}, {1e-5, 1e8}};
  EXPECT_EQ(t.group_in_node(16, 1), 8);
  EXPECT_EQ(t.group_in_node(16, 4), 2);
  EXPECT_EQ(t.group_in_node(2, 1), 2);
  EXPECT_EQ(t.group_in_node(12, 1), 1) << "12 ranks do not fill nodes of 8";
}

// --- prefetch depth

// Weights of 1000 bytes, each used for 100 us; every call takes `call_us`.
std::vector<GatherWindowTime> windows(int n, double compute_us) {
  std::vector<GatherWindowTime> all;
  for (int i = 0; i < n; ++i) all.push_back({"w", "forward", 1000, compute_us, 0});
  return all;
}
CallSeconds calls_of(double us) {
  return [us](std::string_view, int64_t) { return us * 1e-6; };
}

TEST(PrefetchDepth, OneIsEnoughWhereAGatherFitsBehindAUse) {
  const PrefetchChoice c = choose_prefetch(windows(10, 100), 4, calls_of(60), 1 << 20);
  EXPECT_EQ(c.best.depth, 1);
  // Without it every gather is waited for; with it the first alone.
  EXPECT_DOUBLE_EQ(c.tried[0].exposed, 600);
  EXPECT_DOUBLE_EQ(c.best.exposed, 60);
  EXPECT_EQ(c.best.bytes, 1000);
  EXPECT_FALSE(c.by_memory);
  EXPECT_NE(c.why().find("1: 0.06 ms exposed of 0.60 ms communication"), std::string::npos) << c.why();
}

TEST(PrefetchDepth, NoneWhereNothingIsExposed) {
  const PrefetchChoice c = choose_prefetch(windows(10, 100), 1, calls_of(0), 1 << 20);
  EXPECT_EQ(c.best.depth, 0);
}

// Short uses in front of a long weight: two must be under way to hide it.
TEST(PrefetchDepth, DeeperWhereUsesAreUneven) {
  std::vector<GatherWindowTime> w;
  for (int i = 0; i < 6; ++i) {
    w.push_back({"long", "forward", 1000, 200, 0});
    w.push_back({"short", "forward", 10, 1, 0});
    w.push_back({"short", "forward", 10, 1, 0});
  }
  const CallSeconds seconds = [](std::string_view, int64_t brought) {
    return brought > 100 ? 100e-6 : 20e-6;
  };
  const PrefetchChoice c = choose_prefetch(w, 1, seconds, 1 << 20);
  EXPECT_GT(c.best.depth, 1);
  EXPECT_LT(c.best.end, c.tried[1].end);
}

TEST(PrefetchDepth, NoDeeperThanMemoryAllows) {
  std::vector<GatherWindowTime> w = windows(10, 100);
  for (GatherWindowTime& one : w) one.scatter_bytes = 4000;
  const PrefetchChoice none = choose_prefetch(w, 4, calls_of(40), 4999);
  EXPECT_EQ(none.best.depth, 0);
  EXPECT_TRUE(none.by_memory);
  EXPECT_NE(none.why().find("which is not free"), std::string::npos) << none.why();
  EXPECT_EQ(choose_prefetch(w, 4, calls_of(40), 5000).best.depth, 1);
}

}  // namespace
}  // namespace kiln
