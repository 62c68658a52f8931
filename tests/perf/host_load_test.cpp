#include "perf/timing/host_load.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/on_exit.h"

namespace kiln {
namespace {

constexpr const char* kStat =
    "cpu  1000 200 300 9000 50 10 40 70 500 0\n"
    "cpu0 500 100 150 4500 25 5 20 35 250 0\n"
    "cpu1 500 100 150 4500 25 5 20 35 250 0\n"
    "intr 123 4\nctxt 99\n";

TEST(HostLoad, ReadsTheCountersOfTheSystem) {
  const auto clock = parse_proc_stat(kStat, 100);
  ASSERT_TRUE(clock);
  EXPECT_DOUBLE_EQ(clock->busy, 15.5) << "user, nice, system, irq, softirq; guests are in user";
  EXPECT_DOUBLE_EQ(clock->steal, 0.7);
  EXPECT_EQ(clock->cpus, 2);
  for (const char* text : {"", "cpu 1 2 3\ncpu0 1 2 3\n", "cpu  a b c d e f g h\ncpu0 1\n", "intr 1\n"})
    EXPECT_FALSE(parse_proc_stat(text, 100)) << text;
}

TEST(HostLoad, ReadsTheAverageTheLimitAndAProcess) {
  EXPECT_DOUBLE_EQ(*parse_load_average("5.90 4.10 1.00 3/211 812\n"), 5.9);
  EXPECT_FALSE(parse_load_average(""));
  EXPECT_DOUBLE_EQ(*parse_throttled("usage_usec 5\nnr_throttled 3\nthrottled_usec 1500000\n"), 1.5);
  EXPECT_DOUBLE_EQ(*parse_throttled("nr_periods 1\nthrottled_time 2500000000\n"), 2.5);
  EXPECT_FALSE(parse_throttled("usage_usec 5\n")) << "the root group has no limit";
  const auto process =
      parse_process_seconds("812 (a) R 1 (b) S 7 812 812 0 -1 4194304 1 2 3 4 150 50 30 20 20 0 1", 100);
  ASSERT_TRUE(process);
  EXPECT_EQ(process->parent, 7);
  EXPECT_DOUBLE_EQ(process->own, 2);
  EXPECT_DOUBLE_EQ(process->ended_children, 0.5);
  EXPECT_FALSE(parse_process_seconds("812 (kiln) S 7 1 2", 100));
}

LoadSample at(double time, double busy, double own) {
  LoadSample s;
  s.time = time;
  s.cpu = {.busy = busy, .steal = 0, .cpus = 2};
  s.own = own;
  s.load = 5.9;
  return s;
}

TEST(HostLoad, OwnWorkIsNoLoad) {
  const HostLoad alone = load_between(at(0, 10, 1), at(2, 14, 4.98));  // both cores, all of it ours
  EXPECT_NEAR(alone.others, 0.01, 1e-9);
  EXPECT_EQ(alone.why_unreliable(), "") << "the load before it was of something that had ended";
}

TEST(HostLoad, OthersHypervisorAndLimitAreNamed) {
  EXPECT_EQ(load_between(at(0, 10, 1), at(2, 14, 2.4)).why_unreliable(),
            "load 5.9 on 2 cores, 1.3 of them used by others meanwhile: timings unreliable");
  LoadSample stolen = at(2, 14, 5);
  stolen.cpu.steal = 1;
  EXPECT_EQ(load_between(at(0, 10, 1), stolen).why_unreliable(),
            "the hypervisor took 0.5 cores: timings unreliable");
  LoadSample held = at(2, 14, 5);
  held.throttled = 0.8;
  EXPECT_EQ(load_between(at(0, 10, 1), held).why_unreliable(),
            "the cgroup's CPU limit took 0.4 cores: timings unreliable");
}

TEST(HostLoad, AMomentIsJudgedByTheLoadBeforeIt) {
  EXPECT_EQ(load_between(at(0, 10, 1), at(0.1, 10.2, 1)).why_unreliable(),
            "load 5.9 on 2 cores before the start: timings unreliable");
  LoadSample calm = at(0, 10, 1);
  calm.load = 1.5;
  EXPECT_EQ(load_between(calm, at(0.1, 10.2, 1)).why_unreliable(), "");
  EXPECT_EQ(HostLoad{}.why_unreliable(), "") << "nothing was watched";
}

// A process that spins and has no part in the work: a child that is not waited for is nobody's time yet.
TEST(HostLoad, ASpinningProcessBesideIsSeen) {
  const pid_t other = ::fork();
  if (other == 0)
    for (;;) asm volatile("");
  const OnExit end([&] {
    ::kill(other, SIGKILL);
    ::waitpid(other, nullptr, 0);
  });
  const LoadWatch watch(Device::cpu());
  ::usleep(700'000);
  const HostLoad load = watch.load();
  EXPECT_GT(load.others, 0.2);
  EXPECT_NE(load.why_unreliable().find(" used by others meanwhile: timings unreliable"), std::string::npos);
}

}  // namespace
}  // namespace kiln
