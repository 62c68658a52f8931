#include "base/error.h"
#include "dist/comm/nccl_transport.h"

namespace kiln {

bool nccl_built_in() { return false; }

std::string nccl_library(std::string* why_not) {
  if (why_not != nullptr) *why_not = "not built in";
  return {};
}

std::unique_ptr<Transport> make_nccl_transport(Backend&, NcclRendezvous&, const MpiOptions&) {
  throw Error("this kiln was built without NCCL",
              "it needs CUDA and nccl.h when it is built: `make cuda`; or use --transport mpi",
              ErrorKind::unavailable);
}

}  // namespace kiln
