// What the launches of flash_hopper's two passes share.
#pragma once

#include "device/cuda/cuda_check.h"
#include "device/cuda/tensor_map.h"
#include "ops/attention/flash/tiles.cuh"
#include "ops/attention/hopper/hopper_table.h"

namespace kiln::hopper {

inline HeadsLayout layout_of(const Tensor& t, const AttentionProblem& p, int64_t heads) {
  const int64_t rows = t.dim(1), row_stride = t.stride(1);
  return {.base = t.raw(),
          .dtype = p.dtype,
          .D = p.D,
          .heads = heads,
          .T = rows,
          .B = t.dim(0),
          .row_stride = row_stride,
          .batch_stride = t.dim(0) == 1 ? rows * row_stride : t.stride(0)};
}

inline int multiprocessors() {  // of the current GPU, which is the rank's
  int device = 0, count = 0;
  KILN_CUDA_CHECK(cudaGetDevice(&device));
  KILN_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

// The rows of a tensor's heads, for ordinary loads.
template <class T>
flash::HeadRows<const T> rows_of(const Tensor& t) {
  return {.base = t.data<T>(), .batch_stride = t.stride(0), .row_stride = t.stride(1)};
}

// Heads up to 64, 80 and 128 wide; wider ones are refused before this.
template <class F>
void with_shape(const AttentionProblem& p, F f) {
  flash::with_tensor_core_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = hopper_width(p.D);
    if (width == 64) return f(T{}, std::integral_constant<int, 64>{});
    if (width == 80) return f(T{}, std::integral_constant<int, 80>{});
    f(T{}, std::integral_constant<int, 128>{});
  });
}

}  // namespace kiln::hopper
