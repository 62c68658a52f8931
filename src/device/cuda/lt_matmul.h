// Row-major matrix products by cuBLASLt: D = op(A) op(B), or D += op(A) op(B), summed in fp32 (fp64 for
// fp64).
//
// The algorithm for a problem is the one that was chosen for it by measurement, or else the library's first
// suggestion; it is looked up once and remembered, so the same problem takes the same algorithm and gives the
// same bits. Algorithms that let blocks race to add into the
// output are excluded, and so are those that keep partial sums in the output's narrower format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "device/backend.h"
#include "tune/matmul_choice.h"

namespace kiln {

struct LtOperand {
  const void* data;
  int64_t row_stride;  // elements between the starts of its stored rows
  bool transposed = false;
  int64_t batch_stride = 0;  // elements from one matrix of a batch to the next
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
  bool tf32 = false;  // fp32 operands rounded to 11 bits for the tensor cores: several times the speed
  int64_t batch = 1;  // so many products of one shape
  int64_t d_batch_stride = 0;
};

class LtMatmuls {
 public:
  LtMatmuls();  // for the current device
  ~LtMatmuls();
  LtMatmuls(const LtMatmuls&) = delete;
  LtMatmuls& operator=(const LtMatmuls&) = delete;

  // Any sizes: with k = 0 the product is zero. The workspace must not be used by another stream meanwhile.
  void run(const LtMatmul& p, void* workspace, std::size_t workspace_bytes, Stream stream);

  // Measures the library's suggestions for every problem met so far, on operands of its own, and takes the
  // fastest of each from now on.
  std::vector<MatmulChoice> tune(const TuneProgress& progress);
  // Takes these from now on. One that is not an algorithm for its problem on this GPU is an error at its use.
  void use(std::span<const MatmulChoice> choices);

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
