// The second half of the sum of squares, whichever kernel made the first: one block adds the partial sums in
// an order fixed by their number.
#pragma once

#include "ops/cuda_device/reduce.cuh"
#include "ops/step_scalars/step_scalars.h"

namespace kiln {

inline StepScalars* record_of(const Tensor& t) { return reinterpret_cast<StepScalars*>(t.raw()); }

static __global__ void __launch_bounds__(1024)
    sum_partial_squares_kernel(const double* partial, int64_t count, StepScalars* s) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) s->square_sum = sum;
}

}  // namespace kiln
