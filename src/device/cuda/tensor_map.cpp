#include "device/cuda/tensor_map.h"

#include <cuda_runtime.h>

#include "base/error.h"
#include "device/cuda/cuda_check.h"

namespace kiln {
namespace {

// Through the runtime, so that a build needs no driver to link against.
auto encoder() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  KILN_CUDA_CHECK(
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess)
    throw Error("[cuda] the driver has no cuTensorMapEncodeTiled", "install a driver for CUDA 12 or newer");
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
}

}  // namespace

CUtensorMap map_of_heads(const HeadsLayout& l, int rows) {
  static const auto encode = encoder();
  const auto type =
      l.dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(l.D), static_cast<cuuint64_t>(l.heads),
                              static_cast<cuuint64_t>(l.T), static_cast<cuuint64_t>(l.B)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(2 * l.D), static_cast<cuuint64_t>(2 * l.row_stride),
                                static_cast<cuuint64_t>(2 * l.batch_stride)};
  const cuuint32_t box[] = {64, 1, static_cast<cuuint32_t>(rows), 1}, every[] = {1, 1, 1, 1};
  // The driver's own calls need the GPU's context current, which the runtime sees to at a thread's first
  // call.
  int device = 0;
  KILN_CUDA_CHECK(cudaGetDevice(&device));
  KILN_CUDA_CHECK(cudaSetDevice(device));
  CUtensorMap map;
  const CUresult result = encode(&map, type, 4, const_cast<void*>(l.base), sizes, strides, box, every,
                                 CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw Error(cat("[cuda] cuTensorMapEncodeTiled: error ", static_cast<int>(result), " for ", l.heads,
                    " heads of ", l.D, ", ", l.T, " rows of stride ", l.row_stride, ", batch of ", l.B));
  }
  return map;
}

}  // namespace kiln
