// What the fused loss kernels do with one row of logits, a block to a row: the log of its sum of exponentials
// from one read, its gradient, and the mean over rows. Used by cross_entropy and by linear_cross_entropy.
#pragma once

#include <cfloat>

#include "ops/cross_entropy/cross_entropy.h"
#include "ops/cuda_device/reduce.cuh"
#include "ops/cuda_device/rows.cuh"
#include "ops/cuda_device/vector.cuh"

namespace kiln::loss_rows {

constexpr int kAhead = 4;  // packs a thread has in flight

// The fast exponential is off by a few units in the last place of fp32: nothing in 16 bits, too much for
// fp32.
template <class T>
__device__ float exp_of(float x) {
  if constexpr (sizeof(T) == 4) return expf(x);
  return __expf(x);
}

// A row of any length at any place: elements up to the first multiple of 16 bytes, whole packs, and the rest.
template <class T>
struct RowParts {
  int64_t head, packs, tail;

  __device__ RowParts(const T* row, int64_t n) {
    const auto past = static_cast<int64_t>(reinterpret_cast<std::uintptr_t>(row) % 16 / sizeof(T));
    head = past == 0 ? 0 : Pack<T>::kSize - past;
    if (head > n) head = n;
    packs = (n - head) / Pack<T>::kSize;
    tail = n - head - packs * Pack<T>::kSize;
  }
  // Of two rows: packs only where both reach a multiple of 16 bytes at the same column.
  __device__ RowParts(const T* row, const T* other, int64_t n) : RowParts(row, n) {
    if ((reinterpret_cast<std::uintptr_t>(row) - reinterpret_cast<std::uintptr_t>(other)) % 16 == 0) return;
    head = n;
    packs = tail = 0;
  }
  __device__ int64_t tail_begin() const { return head + packs * Pack<T>::kSize; }
  __device__ int64_t column(int64_t pack) const { return head + pack * Pack<T>::kSize; }
};

// Stands for packs beyond the end of a row: adds nothing to a sum of exponentials.
template <class T>
__device__ Pack<T> pack_of_nothing() {
  float v[Pack<T>::kSize];
#pragma unroll
  for (int i = 0; i < Pack<T>::kSize; ++i) v[i] = -INFINITY;
  return Pack<T>::of(v);
}

// A thread's share of a row: its maximum so far, and the sum of exponentials relative to it. The maximum
// starts at the lowest finite value: a logit of -Inf then adds 0. NaN does not win it, but its exponential is
// NaN.
template <class T>
struct OnlineSum {
  float top = -FLT_MAX, sum = 0;

  __device__ void add(float x) {
    const float now = fmaxf(top, x);
    sum = sum * exp_of<T>(top - now) + exp_of<T>(x - now);
    top = now;
  }
  template <int kPacks>
  __device__ void add(const Pack<T> (&packs)[kPacks]) {
    float now = top;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int i = 0; i < Pack<T>::kSize; ++i) now = fmaxf(now, packs[k][i]);
    }
    sum *= exp_of<T>(top - now);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int i = 0; i < Pack<T>::kSize; ++i) sum += exp_of<T>(packs[k][i] - now);
    }
    top = now;
  }
  // log(sum of exponentials) over the whole block.
  __device__ float block_lse() const {
    const float highest = block_max(top);
    return highest + logf(block_sum(sum * exp_of<T>(top - highest)));
  }
};

// A thread's packs first, first + blockDim.x, ... as many as kPacks.
template <class T, int kPacks>
__device__ void load_packs(Pack<T> (&packs)[kPacks], const T* body, int64_t first, int64_t count) {
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int64_t at = first + static_cast<int64_t>(k) * blockDim.x;
    packs[k] = at < count ? load_pack(body + at * Pack<T>::kSize) : pack_of_nothing<T>();
  }
}

template <class T>
__device__ float row_lse(const T* row, int64_t n) {
  const RowParts<T> parts(row, n);
  OnlineSum<T> sum;
  for (int64_t i = threadIdx.x; i < parts.head; i += blockDim.x) sum.add(to_accum(row[i]));
  for (int64_t first = threadIdx.x; first < parts.packs; first += int64_t{kAhead} * blockDim.x) {
    Pack<T> packs[kAhead];
    load_packs(packs, row + parts.head, first, parts.packs);
    sum.add(packs);
  }
  for (int64_t i = threadIdx.x; i < parts.tail; i += blockDim.x)
    sum.add(to_accum(row[parts.tail_begin() + i]));
  return sum.block_lse();
}

// weight * (softmax - [column is the target]), for one row.
template <class T>
struct RowGradient {
  float lse, weight;
  int64_t target;  // outside the row: no column

  __device__ float at(float logit, int64_t column) const {
    return weight * (exp_of<T>(logit - lse) - (column == target ? 1.0f : 0.0f));
  }
  __device__ void of_pack(const Pack<T>& logits, int64_t column, float (&g)[Pack<T>::kSize]) const {
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i) g[i] = exp_of<T>(logits[i] - lse);
    if (target >= column && target < column + Pack<T>::kSize) {
#pragma unroll
      for (int i = 0; i < Pack<T>::kSize; ++i) g[i] -= column + i == target ? 1.0f : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i) g[i] *= weight;
  }
};

// One block: the mean over the rows that count, in double, in an order that depends on their number alone.
// `count` may be null.
template <class A>
__global__ void __launch_bounds__(1024)
    mean_loss_kernel(int64_t rows, const int32_t* targets, const A* losses, A* loss, A* count) {
  double total = 0, counted = 0;  // a count is exact in double up to 2^53
  for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) {
    total += static_cast<double>(losses[r]);
    counted += targets[r] != kIgnoreTarget;
  }
  total = block_sum(total);
  counted = block_sum(counted);
  if (threadIdx.x != 0) return;
  if (count != nullptr) *count = static_cast<A>(counted);
  *loss = counted == 0 ? A(0) : static_cast<A>(total / counted);
}

// Threads for a row of `packs` packs of which each takes `each`: whole warps.
inline int threads_for(int64_t packs, int64_t each) {
  const int64_t warps = (packs + 32 * each - 1) / (32 * each);
  return static_cast<int>(32 * std::clamp<int64_t>(warps, 1, 32));
}

}  // namespace kiln::loss_rows
