// The rank this process is, for the tests of dist_ranks.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <random>
#include <thread>

#include "dist/comm/communicator.h"
#include "dist/comm/mpi_process.h"
#include "dist/comm/nccl_transport.h"
#include "dist/launch/rank_env.h"

namespace kiln {

struct ThisRank {
  std::unique_ptr<MpiProcess> mpi;
  RankEnv env;
};
ThisRank& this_rank();

class FailuresOnly : public testing::EmptyTestEventListener {
 public:
  explicit FailuresOnly(int rank) : rank_(rank) {}
  void OnTestPartResult(const testing::TestPartResult& r) override {
    if (r.failed())
      std::fprintf(stderr, "rank %d: %s:%d: %s\n", rank_, r.file_name(), r.line_number(), r.message());
  }

 private:
  int rank_;
};

// A context and a communicator of this process.
struct RankRig {
  explicit RankRig(Device device = Device::cpu(), const MpiOptions& options = default_options(),
                   bool nccl = false);
  static MpiOptions default_options() {
    MpiOptions o;
    o.comm.timeout = std::chrono::seconds(30);
    return o;
  }
  RankContext ctx;
  std::unique_ptr<NcclRendezvous> rendezvous;
  Communicator ranks;
};

// Ranks come to the next call in another order each time, the same one at every run.
class Shuffle {
 public:
  explicit Shuffle(int round) : random_(static_cast<unsigned>(1009 * round + this_rank().mpi->rank())) {}
  void operator()() { std::this_thread::sleep_for(std::chrono::microseconds(random_() % 3000)); }

 private:
  std::mt19937 random_;
};

inline constexpr int kRounds = 5;

}  // namespace kiln
