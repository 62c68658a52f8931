#include "base/error.h"
#include "dist/comm/mpi_process.h"

namespace kiln {

bool mpi_built_in() { return false; }

std::string mpi_library() { return {}; }

std::unique_ptr<MpiProcess> start_mpi() {
  throw Error("this kiln was built without MPI",
              "apt install libopenmpi-dev openmpi-bin, then `make build`; or use --transport threads",
              ErrorKind::unavailable);
}

}  // namespace kiln
