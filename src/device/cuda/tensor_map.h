// A tensor as Hopper's copy engine is told of it.
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

// Whether the engine can: it addresses in units of 16 bytes.
bool copy_engine_takes(const HeadsLayout& layout);

// Boxes of 64 channels and `rows` rows of one head, swizzled by 128 bytes.
CUtensorMap map_of_heads(const HeadsLayout& layout, int rows);

}  // namespace kiln
