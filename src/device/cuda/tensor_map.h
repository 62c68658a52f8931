// The tensor map (descriptor) by which TMA addresses a tensor.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "base/dtype.h"

namespace kiln {

// Heads of a [B, T, heads * D] tensor of 16-bit values; strides in elements.
struct HeadsLayout {
  const void* base;
  DType dtype;
  int64_t D, heads, T, B;
  int64_t row_stride, batch_stride;
};

// Boxes of 64 channels and `rows` rows of one head, swizzled by 128 bytes. TMA addresses in units of
// 16 bytes: base, width and strides are multiples of that.
CUtensorMap map_of_heads(const HeadsLayout& layout, int rows);

}  // namespace kiln
