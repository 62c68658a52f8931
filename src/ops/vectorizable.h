// Whether a tensor's rows can be read and written 16 bytes at a time, as the fused CUDA kernels do. An op's
// Problem says so of all the tensors of a pass, so that a row which needs it can refuse in words. `meta`
// answers as the GPU would, since it hands out addresses aligned alike.
#pragma once

#include <cstdint>

#include "autograd/param.h"

namespace kiln {

inline constexpr int64_t kVectorBytes = 16;  // the widest access a thread has

// Every row begins at a multiple of `bytes` and is a whole number of them long. An undefined tensor's do.
inline bool rows_aligned(const Tensor& t, int64_t bytes) {
  if (!t.defined()) return true;
  const auto size = static_cast<int64_t>(size_of(t.dtype()));
  const int last = t.shape().rank() - 1;
  if (reinterpret_cast<std::uintptr_t>(t.raw()) % static_cast<std::uintptr_t>(bytes) != 0) return false;
  if (last >= 0 && t.dim(last) * size % bytes != 0) return false;
  for (int axis = 0; axis < last; ++axis) {
    if (t.dim(axis) > 1 && t.stride(axis) * size % bytes != 0) return false;
  }
  return true;
}

inline bool vectorizable(const Tensor& t) { return rows_aligned(t, kVectorBytes); }

// A weight that is not here yet is brought to a place aligned for this: ParamStore and the strategies pad
// every parameter to whole vectors.
inline bool vectorizable(const ParamRef& p) {
  const Tensor& whole = p.param->value;
  return !whole.defined() || vectorizable(p.row_begin == 0 ? whole : whole.narrow(0, p.row_begin, p.rows));
}

template <class... T>
bool all_vectorizable(const T&... t) {
  return (vectorizable(t) && ...);
}

}  // namespace kiln
