// Row-major matrix products by cuBLASLt: D = op(A) op(B), or D += op(A) op(B), summed in fp32 (fp64 for
// fp64).
//
// The algorithm for a problem is the library's first suggestion, asked for once and remembered, so the same
// problem takes the same algorithm and gives the same bits. Algorithms that let blocks race to add into the
// output are excluded, and so are those that keep partial sums in the output's narrower format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/dtype.h"
#include "device/backend.h"

namespace kiln {

struct LtOperand {
  const void* data;
  int64_t row_stride;  // elements between the starts of its stored rows
  bool transposed = false;
};

struct LtMatmul {
  int64_t m, n, k;
  DType in;     // of a and b
  LtOperand a;  // op(a) is [m, k]: stored so, or as [k, m] where transposed
  LtOperand b;  // op(b) is [k, n], or stored as [n, k]
  DType out;    // `in`, or fp32 beside bf16 and fp16
  void* d;      // [m, n]
  int64_t d_row_stride;
  bool accumulate = false;
};

class LtMatmuls {
 public:
  LtMatmuls();  // for the current device
  ~LtMatmuls();
  LtMatmuls(const LtMatmuls&) = delete;
  LtMatmuls& operator=(const LtMatmuls&) = delete;

  // Any sizes: with k = 0 the product is zero. The workspace must not be used by another stream meanwhile.
  void run(const LtMatmul& p, void* workspace, std::size_t workspace_bytes, Stream stream);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
