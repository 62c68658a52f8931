#include "dist/launch/rank_env.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace kiln {
namespace {

using Variables = std::map<std::string, std::string>;

RankEnv read(const Variables& v) {
  return read_rank_env([&](const char* name) {
    const auto found = v.find(name);
    return found == v.end() ? nullptr : found->second.c_str();
  });
}

std::string refusal(const Variables& v) {
  try {
    (void)read(v);
  } catch (const Error& e) {
    EXPECT_FALSE(e.hint().empty());
    return e.what();
  }
  return "accepted";
}

TEST(RankEnv, NothingSetIsOneRankStartedByHand) {
  const RankEnv r = read({});
  EXPECT_FALSE(r.launched());
  EXPECT_EQ(r.rank, 0);
  EXPECT_EQ(r.world, 1);
}

TEST(RankEnv, EachLauncherIsUnderstood) {
  const RankEnv mpi = read({{"OMPI_COMM_WORLD_RANK", "2"},
                            {"OMPI_COMM_WORLD_SIZE", "5"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}});
  EXPECT_EQ(mpi.source, "Open MPI");
  EXPECT_EQ(mpi.rank, 2);
  EXPECT_EQ(mpi.world, 5);
  EXPECT_EQ(mpi.local_rank, 0);
  EXPECT_EQ(mpi.local_world, 3);
  const RankEnv torch = read({{"RANK", "3"},
                              {"WORLD_SIZE", "4"},
                              {"LOCAL_RANK", "1"},
                              {"MASTER_ADDR", "10.0.0.1"},
                              {"MASTER_PORT", "29500"}});
  EXPECT_EQ(torch.source, "torchrun");
  EXPECT_EQ(torch.rank, 3);
  EXPECT_EQ(torch.local_rank, 1);
  EXPECT_EQ(torch.master_address, "10.0.0.1");
  EXPECT_EQ(torch.master_port, 29500);
  const RankEnv slurm = read({{"SLURM_PROCID", "7"},
                              {"SLURM_STEP_NUM_TASKS", "8"},
                              {"SLURM_LOCALID", "3"},
                              {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"}});
  EXPECT_EQ(slurm.source, "Slurm");
  EXPECT_EQ(slurm.rank, 7);
  EXPECT_EQ(slurm.local_rank, 3);
  EXPECT_EQ(slurm.local_world, 4);
  EXPECT_EQ(read({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).source, "PMI");
  EXPECT_EQ(read({{"KILN_RANK", "1"}, {"KILN_WORLD", "2"}}).source, "kiln");
}

TEST(RankEnv, ABatchScriptOfSlurmIsNoRank) {
  EXPECT_FALSE(read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}).launched());
}

TEST(RankEnv, MpirunInsideASlurmAllocationIsMpirun) {
  const RankEnv r = read({{"SLURM_PROCID", "0"},
                          {"SLURM_STEP_NUM_TASKS", "2"},
                          {"OMPI_COMM_WORLD_RANK", "3"},
                          {"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_EQ(r.source, "Open MPI");
  EXPECT_EQ(r.rank, 3);
}

TEST(RankEnv, HalfSetIsRefused) {
  EXPECT_EQ(refusal({{"RANK", "1"}}),
            "RANK is set and WORLD_SIZE is not: half of what torchrun says to a rank");
  EXPECT_EQ(
      refusal({{"OMPI_COMM_WORLD_SIZE", "2"}}),
      "OMPI_COMM_WORLD_SIZE is set and OMPI_COMM_WORLD_RANK is not: half of what Open MPI says to a rank");
}

TEST(RankEnv, NoNumbersAndOutOfRangeAreRefused) {
  EXPECT_EQ(refusal({{"RANK", "two"}, {"WORLD_SIZE", "4"}}),
            "RANK is 'two'; expected a whole number from 0 to 3");
  EXPECT_EQ(refusal({{"RANK", "4"}, {"WORLD_SIZE", "4"}}),
            "RANK is '4'; expected a whole number from 0 to 3");
  EXPECT_EQ(refusal({{"RANK", "0"}, {"WORLD_SIZE", "0"}}),
            "WORLD_SIZE is '0'; expected a whole number from 1 to 65536");
  EXPECT_EQ(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}),
            "MASTER_PORT is '70000'; expected a whole number from 1 to 65535");
}

TEST(RankEnv, ContradictionsAreRefused) {
  const Variables both = {
      {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}};
  EXPECT_EQ(read(both).source, "Open MPI");  // they agree
  Variables other = both;
  other["WORLD_SIZE"] = std::string("4");
  EXPECT_EQ(refusal(other), "Open MPI says rank 0 of 2, torchrun says rank 0 of 4");
}

}  // namespace
}  // namespace kiln
