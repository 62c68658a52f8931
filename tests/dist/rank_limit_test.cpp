#include "dist/launch/rank_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "dist/comm/threads/thread_group.h"

namespace kiln {
namespace {

double cpu_seconds_of_this_thread() {
  rusage used{};
  ::getrusage(RUSAGE_THREAD, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

std::string refusal(int ranks, int cores, bool oversubscribe) {
  try {
    check_rank_count("--nproc", ranks, cores, oversubscribe);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::usage);
    EXPECT_NE(e.hint().find("--oversubscribe"), std::string::npos);
    return e.what();
  }
  return "";
}

TEST(RankLimit, FourRanksToACoreUnlessMoreAreMeant) {
  EXPECT_EQ(refusal(8, 2, false), "");
  EXPECT_EQ(refusal(9, 2, false), "--nproc is 9; expected at most 8 ranks on 2 cores, 4 to a core");
  EXPECT_EQ(refusal(5, 1, false), "--nproc is 5; expected at most 4 ranks on 1 core, 4 to a core");
  EXPECT_EQ(refusal(1000, 2, true), "");
}

TEST(RankLimit, EachMachineHasItsOwnRanks) {
  EXPECT_EQ(ranks_of_a_machine(8, ""), 8);
  EXPECT_EQ(ranks_of_a_machine(8, "a"), 8);
  EXPECT_EQ(ranks_of_a_machine(9, "a,b:4"), 5);
}

TEST(RankLimit, RanksShareCoresWhereThereAreMoreOfThem) {
  EXPECT_FALSE(shares_cores(2, 2));
  EXPECT_TRUE(shares_cores(3, 2));
}

// A rank that waits sleeps: on a full machine the one it waits for needs the core.
TEST(RankLimit, AThreadThatWaitsForAnotherTakesNoTime) {
  double taken = 1;
  run_thread_ranks(2, {}, [&](RankContext& ctx, Communicator& ranks) {
    ranks.barrier(ctx, "start");
    if (ranks.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const double before = cpu_seconds_of_this_thread();
    ranks.barrier(ctx, "end");
    if (ranks.rank() == 0) taken = cpu_seconds_of_this_thread() - before;
  });
  EXPECT_LT(taken, 0.05);
}

}  // namespace
}  // namespace kiln
