// MPI in this process: ranks as processes, on one machine or many. The only interface to MPI; a build
// without MPI links no_mpi.cpp instead.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/comm/comm_options.h"
#include "dist/comm/transport.h"

namespace kiln {

struct MpiOptions {
  CommOptions comm;
  ReductionOrder reduction = ReductionOrder::deterministic;
  bool roll_call_only =
      false;  // run() only checks that all ranks make the same call; another transport moves the data
  std::function<void(const CommCall*)> watch;  // called before each call, and with null after it
};

class MpiProcess {
 public:
  virtual ~MpiProcess() = default;  // without finish(): as one that failed, without a farewell to others

  virtual int rank() const = 0;
  virtual int world() const = 0;
  // Of all ranks, one transport each; the communicator's thread makes its calls, concurrently with others.
  virtual std::unique_ptr<Transport> transport(Backend& backend, const MpiOptions& options) = 0;
  // Every rank's text, by rank; all ranks call it. Short texts: 4000 bytes at most.
  virtual std::vector<std::string> exchange(const std::string& mine, const MpiOptions& options) = 0;
  virtual void finish() = 0;  // all ranks are done; nothing of MPI may be used after
};

bool mpi_built_in();
std::string mpi_library();  // its name and version; empty where it is not built in

// Once in a process. Throws Error(unavailable) where MPI is not built in.
std::unique_ptr<MpiProcess> start_mpi();

}  // namespace kiln
