// MPI in this process: ranks as processes, on one machine or many. The one door to MPI; where it was absent
// when kiln was built, no_mpi.cpp stands behind it.
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
  RankSums sums = RankSums::ranked;
  bool roll_call_only =
      false;  // run() meets the others and moves nothing: for who has another way to move it
  std::function<void(const CommCall*)> watch;  // told of each call before it begins, and null after it
};

class MpiProcess {
 public:
  virtual ~MpiProcess() = default;  // without finish(): as one that failed, and takes leave of nobody

  virtual int rank() const = 0;
  virtual int world() const = 0;
  // Of all ranks, one transport each; the communicator's thread makes its calls, beside those of others.
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
