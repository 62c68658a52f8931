// The `nccl` transport: collectives between GPUs by NVIDIA's library. Ranks first rendezvous over MPI or TCP,
// to pass on the id of their communicator. A build without NCCL links no_nccl.cpp instead.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/backend.h"
#include "dist/comm/mpi_process.h"
#include "dist/launch/rank_env.h"

namespace kiln {

// How ranks find each other before there is a communicator.
class NcclRendezvous {
 public:
  virtual ~NcclRendezvous() = default;
  virtual int rank() const = 0;
  virtual int world() const = 0;
  virtual int local_rank() const = 0;
  // Every rank's text, by rank; all ranks call it. 4000 bytes at most; any byte but zero.
  virtual std::vector<std::string> exchange(const std::string& mine) = 0;
  // A transport that only holds a roll call before each call, so that who is missing or brings another call
  // is named: NCCL itself would wait, or sum mismatched data.
  virtual std::unique_ptr<Transport> roll_call(Backend& backend, const MpiOptions& options) = 0;
};

std::unique_ptr<NcclRendezvous> rendezvous_over_mpi(MpiProcess& mpi, const MpiOptions& options);
// Rank 0 listens at MASTER_ADDR:MASTER_PORT (127.0.0.1 by default), the others connect there.
std::unique_ptr<NcclRendezvous> rendezvous_over_tcp(const RankEnv& env, const CommOptions& options);

bool nccl_built_in();
// The version of the library on this machine; empty, with the reason, where it cannot be loaded.
std::string nccl_library(std::string* why_not = nullptr);

// All ranks call it, each with the backend of its own GPU.
std::unique_ptr<Transport> make_nccl_transport(Backend& backend, NcclRendezvous& rendezvous,
                                               const MpiOptions& options);

}  // namespace kiln
