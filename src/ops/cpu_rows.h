// Small helpers the plain CPU kernels share: rows of a strided tensor, widening to the accumulation type, and
// writing a gradient that may have to add to what is there.
#pragma once

#include <algorithm>

#include "autograd/param.h"
#include "base/dtype.h"
#include "tensor/tensor.h"

namespace kiln {

template <class T>
struct Rows {
  T* base;
  int64_t stride;
  T* operator[](int64_t row) const { return base + row * stride; }
  T* row_or_null(int64_t row) const { return base ? base + row * stride : nullptr; }
};

template <class T>
Rows<T> rows_of(const Tensor& t) {
  return {t.data<std::remove_const_t<T>>(), t.row_stride()};
}

template <class T>
Accum<T> widen(T v) {
  return static_cast<Accum<T>>(v);
}

template <class G, class A>
void put(G& destination, A value, bool accumulate) {
  if (accumulate) value += static_cast<A>(widen(destination));
  destination = static_cast<G>(static_cast<Accum<G>>(value));
}

// A weight's gradient has the dtype of its activations or is wider; calls f with a value of its type.
template <class T, class F>
void with_grad_type(const GradSlot& slot, F f) {
  if (slot.tensor.dtype() == dtype_of<T>()) {
    f(T{});
  } else {
    f(Accum<T>{});
  }
}

// Rows per chunk so that a chunk pays for its dispatch to another thread; depends on the problem alone.
inline int64_t row_grain(int64_t work_per_row) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, work_per_row));
}

}  // namespace kiln
