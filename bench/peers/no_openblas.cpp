#include "peers.h"

namespace kiln {

std::unique_ptr<PeerGemm> openblas_gemm(const PeerProblem&) { return nullptr; }
std::string openblas_name() { return "OpenBLAS: not found at configure time (apt install libopenblas-dev)"; }

}  // namespace kiln
