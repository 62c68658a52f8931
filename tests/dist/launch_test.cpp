#include "dist/launch/launch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>

#include "base/on_exit.h"
#include "dist/launch/launch_folder.h"
#include "dist/launch/rank_status_page.h"
#include "dist/launch/ranks.h"

namespace kiln {
namespace {

// As Open MPI 4.1 writes it.
constexpr const char* kKilled = R"(--------------------------------------------------------------------------
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
--------------------------------------------------------------------------
--------------------------------------------------------------------------
mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).
--------------------------------------------------------------------------
)";
constexpr const char* kStatus = R"(--------------------------------------------------------------------------
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[27157,1],3]
  Exit code:    7
--------------------------------------------------------------------------
)";

RankStatus line(RankState state, int pid, const std::string& call, bool in_call) {
  RankStatus l;
  l.state = state;
  l.pid = pid;
  l.host = "node7";
  l.call = call;
  l.in_call = in_call;
  return l;
}

TEST(Launch, ReadsWhatMpirunSays) {
  EXPECT_EQ(read_exit_cause(kKilled).rank, 1);
  EXPECT_EQ(read_exit_cause(kKilled).signal, 9);
  EXPECT_EQ(read_exit_cause(kStatus).rank, 3);
  EXPECT_EQ(read_exit_cause(kStatus).signal, 0);
  EXPECT_EQ(read_exit_cause(kStatus).exit_status, 7);
  EXPECT_EQ(read_exit_cause("nothing of that kind").rank, -1);
}

TEST(Launch, AKilledRankIsNamedBeforeWhatOthersMadeOfIt) {
  std::vector<RankStatus> ranks = {line(RankState::failed, 11, "all_reduce of 8 fp32 (w)", true),
                                   line(RankState::joined, 12, "all_reduce of 8 fp32 (w)", true)};
  ranks[0].error = "rank 1 went away";
  EXPECT_STREQ(explain_failure(ranks, {1, 9, 0}, 137).what(),
               "rank 1 (pid 12 on node7) was ended by signal 9 (Killed) in all_reduce of 8 fp32 (w)");
  ranks[1].in_call = false;
  ranks[1].step = 7;
  EXPECT_STREQ(
      explain_failure(ranks, {1, 11, 0}, 139).what(),
      "rank 1 (pid 12 on node7) was ended by signal 11 (Segmentation fault) in step 7 after all_reduce of 8 "
      "fp32 (w)");
  EXPECT_STREQ(explain_failure({RankStatus{}, line(RankState::started, 5, "", false)}, {1, 9, 0}, 137).what(),
               "rank 1 (pid 5 on node7) was ended by signal 9 (Killed) before its first collective");
}

TEST(Launch, TheFirstErrorOfARankIsTheCause) {
  std::vector<RankStatus> ranks(3, line(RankState::failed, 11, "", false));
  for (std::size_t i = 0; i < 3; ++i) {
    ranks[i].pid = static_cast<int>(20 + i);
    ranks[i].failed_at = i == 1 ? 100 : 200;
    ranks[i].error = i == 1 ? "the disk is full" : "rank 1 failed: the disk is full";
    ranks[i].hint = "make room";
    ranks[i].kind = ErrorKind::unavailable;
  }
  const Error e = explain_failure(ranks, {0, 0, 3}, 3);
  EXPECT_STREQ(e.what(), "rank 1 (pid 21 on node7): the disk is full");
  EXPECT_EQ(e.hint(), "make room");
  EXPECT_EQ(e.kind(), ErrorKind::unavailable);
}

TEST(Launch, AfterATimeOutTheSilentRankIsNamedToo) {
  std::vector<RankStatus> ranks(3, line(RankState::failed, 20, "broadcast from rank 0 of 8 fp32", true));
  ranks[0].error = ranks[1].error = "[broadcast] rank 0 waited 3000 ms; not done: rank 1";
  ranks[1].failed_at = 1;
  ranks[2] = line(RankState::joined, 22, "all_gather of 3 fp32 (w)", false);
  EXPECT_STREQ(
      explain_failure(ranks, {0, 0, 1}, 1).what(),
      "rank 0 (pid 20 on node7): [broadcast] rank 0 waited 3000 ms; not done: rank 1; silent: rank 2 (pid 22 "
      "on node7) after all_gather of 3 fp32 (w)");
  // One that was stopped notes what the others did when it is woken to be ended.
  ranks[2].state = RankState::failed;
  EXPECT_EQ(std::string(explain_failure(ranks, {0, 0, 1}, 1).what()).find("silent"), std::string::npos);
  ranks[2].stopped = true;
  EXPECT_NE(std::string(explain_failure(ranks, {0, 0, 1}, 1).what())
                .find("; silent: rank 2 (pid 22 on node7), stopped, after all_gather"),
            std::string::npos);
}

TEST(Launch, WithoutANoteTheStatusIsTold) {
  EXPECT_STREQ(explain_failure({line(RankState::joined, 11, "", false)}, {0, 0, 7}, 7).what(),
               "rank 0 (pid 11 on node7) ended with status 7 before its first collective");
  EXPECT_STREQ(explain_failure({RankStatus{}}, {}, 213).what(),
               "mpirun ended with status 213 and named no rank");
}

TEST(RankStatusPage, WhatARankWritesTheLauncherReads) {
  const std::string path = testing::TempDir() + "status_page";
  std::filesystem::remove(path);
  const auto launcher = RankStatusPage::create(path, 3);
  const auto rank = RankStatusPage::open(path, 2);
  ASSERT_NE(rank, nullptr);
  EXPECT_EQ(launcher->read(2).state, RankState::absent);
  rank->start();
  EXPECT_EQ(launcher->read(2).state, RankState::started);
  EXPECT_EQ(launcher->read(2).pid, ::getpid());
  EXPECT_FALSE(launcher->read(2).host.empty());
  rank->join();
  rank->step(41);
  rank->enter("all_reduce of 8 fp32 (" + std::string(400, 'x') + ")");
  EXPECT_TRUE(launcher->read(2).in_call);
  EXPECT_EQ(launcher->read(2).step, 41);
  EXPECT_EQ(launcher->read(2).call.substr(0, 24), "all_reduce of 8 fp32 (xx");
  rank->leave();
  EXPECT_FALSE(launcher->read(2).in_call);
  rank->fail(Error("first", "hint", ErrorKind::usage));
  rank->fail(Error("second"));
  EXPECT_EQ(launcher->read(2).error, "first");
  EXPECT_EQ(launcher->read(2).kind, ErrorKind::usage);
  EXPECT_GT(launcher->read(2).failed_at, 0);
  EXPECT_EQ(launcher->read(1).state, RankState::absent);
  EXPECT_EQ(RankStatusPage::open(path, 3), nullptr);
  EXPECT_EQ(RankStatusPage::open(path + ".nowhere", 0), nullptr);
  EXPECT_THROW((void)RankStatusPage::create(path, 2), Error);  // never another run's
  std::filesystem::remove(path);
}

TEST(RankCards, DifferencesAreNamed) {
  const std::string fingerprint = config_fingerprint("train --steps 10");
  check_fingerprints({fingerprint, fingerprint, fingerprint});
  EXPECT_NE(fingerprint, config_fingerprint("train --steps 11"));
  auto said = [](const std::vector<std::string>& fingerprints) {
    try {
      check_fingerprints(fingerprints);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_TRUE(said({fingerprint, fingerprint, config_fingerprint("train --steps 11")})
                  .starts_with("rank 2 was given other options"));
  EXPECT_TRUE(said({fingerprint, config_fingerprint("x")})
                  .starts_with("rank 1 was given other options than rank 0: "));
  EXPECT_EQ(said({"version 0.1.0\nbuild a\n", "version 0.2.0\nbuild a\n"}),
            "rank 1 runs another kiln than rank 0: version 0.2.0 and not version 0.1.0");
}

TEST(LaunchedRequest, AsTheEnvironmentSays) {
  auto request = [](std::map<std::string, std::string> v) {
    return launched_request([&](const char* name) {
      const auto found = v.find(name);
      return found == v.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_EQ(request({}).transport, "threads");
  EXPECT_EQ(request({}).world, 1);
  const RanksRequest threads =
      request({{"KILN_TRANSPORT", "threads"}, {"KILN_RANKS", "4"}, {"KILN_COMM_TIMEOUT", "2.5"}});
  EXPECT_EQ(threads.world, 4);
  EXPECT_EQ(threads.comm.timeout.count(), 2500);
  const RanksRequest mpi = request({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "3"}});
  EXPECT_EQ(mpi.transport, "mpi");
  EXPECT_EQ(mpi.world, 3);
  EXPECT_EQ(
      request({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "3"}, {"KILN_TRANSPORT", "nccl"}})
          .transport,
      "nccl");
  // One rank is a rank too, and torchrun's have no MPI.
  const RanksRequest one =
      request({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}, {"KILN_TRANSPORT", "mpi"}});
  EXPECT_EQ(one.transport, "mpi");
  EXPECT_EQ(one.world, 1);
  const RanksRequest torch = request({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(torch.transport, "nccl");
  EXPECT_EQ(torch.world, 2);
  EXPECT_THROW((void)request({{"KILN_COMM_TIMEOUT", "soon"}}), Error);
}

TEST(Launch, ClearsAwayWhatKilledLaunchersHaveLeft) {
  namespace fs = std::filesystem;
  std::string parent = (fs::temp_directory_path() / "kiln-lost-XXXXXX").string();
  ASSERT_NE(::mkdtemp(parent.data()), nullptr);
  const OnExit remove([&] { fs::remove_all(parent); });
  const auto folder = [&](const char* name, std::chrono::minutes age) {
    const fs::path path = fs::path(parent) / name;
    fs::create_directories(path / "inside");
    fs::last_write_time(path, fs::file_time_type::clock::now() - age);
    return path;
  };
  using std::chrono::minutes;
  const fs::path lost = folder("kiln-run-lost", minutes(5)), held = folder("kiln-run-held", minutes(5)),
                 young = folder("kiln-run-young", minutes(0)), other = folder("other", minutes(5));
  const int file = ::open(held.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const OnExit close([&] { ::close(file); });
  ASSERT_EQ(::flock(file, LOCK_EX), 0);
  clear_lost_launches(parent);
  EXPECT_FALSE(fs::exists(lost));
  EXPECT_TRUE(fs::exists(held / "inside"));
  EXPECT_TRUE(fs::exists(young / "inside"));
  EXPECT_TRUE(fs::exists(other / "inside"));
  clear_lost_launches(parent + "/nowhere");  // nothing, and no error
}

}  // namespace
}  // namespace kiln
