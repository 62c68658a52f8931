// What the plain CUDA kernels share: rows of a strided tensor, widening to the accumulation type, writing a
// gradient that may have to add to what is there, and the grids that cover a matrix or a flat range.
#pragma once

#include <algorithm>

#include "autograd/param.h"
#include "base/dtype.h"
#include "device/cuda/launch.h"
#include "tensor/tensor.h"

namespace kiln {

inline constexpr int kThreads = 256;

// Row r of a row-strided tensor is view[r]. Null where there is no tensor (a gradient nobody wants).
template <class T>
struct RowView {
  T* base = nullptr;
  int64_t stride = 0;  // elements

  __device__ T* operator[](int64_t row) const { return base + row * stride; }
  __device__ explicit operator bool() const { return base != nullptr; }
};

template <class T>
RowView<T> row_view(const Tensor& t) {
  return t.defined() ? RowView<T>{t.data<T>(), t.row_stride()} : RowView<T>{};
}

template <class T>
__device__ Accum<T> to_accum(T v) {
  return static_cast<Accum<T>>(v);
}

// Rounds once to the stored type.
template <class T, class A>
__device__ T from_accum(A v) {
  return static_cast<T>(static_cast<Accum<T>>(v));
}

template <class G, class A>
__device__ void put_grad(G& destination, A value, bool accumulate) {
  if (accumulate) value += static_cast<A>(to_accum(destination));
  destination = from_accum<G>(value);
}

// A weight's gradient has the dtype of its activations or is wider; calls f with a value of its type.
template <class T, class F>
void with_grad_dtype(DType grad, F f) {
  if (grad == dtype_of<T>()) {
    f(T{});
  } else {
    f(Accum<T>{});
  }
}

// For kernels that compute in fp32: calls f with a value of the type behind fp32, bf16 or fp16.
template <class F>
void with_narrow_gpu_float(DType t, F f) {
  if (t == DType::f32) return f(float{});
  if (t == DType::bf16) return f(bf16{});
  if (t == DType::f16) return f(fp16{});
  throw Error(cat("a kernel that computes in fp32 was given ", name_of(t)));
}

inline int64_t blocks_for(int64_t count, int64_t per_block) { return (count + per_block - 1) / per_block; }

// One thread per element of a flat range: see flat_index().
inline Grid flat_grid(int64_t count) { return {blocks_for(count, kThreads)}; }

__device__ inline int64_t flat_index() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }

// Block (r, y) works on row r, its threads on columns first_column(), first_column() + column_step(), ...
inline Grid matrix_grid(int64_t rows, int64_t cols) {
  return {rows, std::min<int64_t>(blocks_for(cols, kThreads), 65535)};
}

__device__ inline int64_t first_column() {
  return static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
}

__device__ inline int64_t column_step() { return static_cast<int64_t>(gridDim.y) * blockDim.x; }

}  // namespace kiln
