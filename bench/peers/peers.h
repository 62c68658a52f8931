// GEMMs of other libraries behind one interface, so that the bench can loop over them. A library
// that was not found at configure time is its no_<name>.cpp.
#pragma once

#include <memory>
#include <string>

#include "base/dtype.h"

namespace kiln {

// C[M, N] = op(A) op(B), row-major, dense; A is [K, M] and B is [N, K] where they are transposed.
struct PeerProblem {
  int64_t M, N, K;
  bool transpose_a, transpose_b;
  DType in;   // fp32 or bf16
  DType out;  // of C
  const void* a;
  const void* b;
  void* c;
};

class PeerGemm {
 public:
  virtual ~PeerGemm() = default;
  virtual void run() = 0;
};

// Null where the library is absent or does not do this dtype.
std::unique_ptr<PeerGemm> onednn_gemm(const PeerProblem& problem);
std::unique_ptr<PeerGemm> openblas_gemm(const PeerProblem& problem);

// "oneDNN 2.6.3", or why it is not there.
std::string onednn_name();
std::string openblas_name();

}  // namespace kiln
