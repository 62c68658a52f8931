// What the fused kernels on rows are made of: a row in registers, in packs of 16 bytes, shared by a group of
// threads (RowGroups: a warp for short rows, a block for long ones); sums over a group; and the sum over all
// rows of a weight's gradient, per block into a workspace and over the blocks by a second kernel, in an order
// fixed by the problem: no atomics. Blocks are (threads of a row, rows at a time).
#pragma once

#include <type_traits>

#include "ops/cuda_device/reduce.cuh"
#include "ops/cuda_device/rows.cuh"
#include "ops/cuda_device/vector.cuh"
#include "ops/cuda_fused.h"

namespace kiln {

template <class V>
__device__ V group_sum(V v) {
  return blockDim.x == 32 ? warp_reduce(v, Add{}) : block_sum(v);
}

template <class V>
__device__ V group_max(V v) {
  return blockDim.x == 32 ? warp_reduce(v, Larger{}) : block_max(v);
}

template <class T, int kPacks>
struct RowPacks {
  Pack<T> pack[kPacks];

  // Zero beyond the end of the row: adds nothing to a sum.
  __device__ void load(const T* row, int64_t packs) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int64_t at = threadIdx.x + static_cast<int64_t>(k) * blockDim.x;
      pack[k] = at < packs ? load_pack(row + at * Pack<T>::kSize) : Pack<T>{};
    }
  }
  __device__ void store(T* row, int64_t packs) const {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int64_t at = threadIdx.x + static_cast<int64_t>(k) * blockDim.x;
      if (at < packs) store_pack(row + at * Pack<T>::kSize, pack[k]);
    }
  }
  __device__ float at(int k, int i) const { return pack[k][i]; }
  // The column of the first element of this thread's pack k; a row has at most 32 KiB.
  __device__ static int column(int k) {
    return static_cast<int>(threadIdx.x + k * blockDim.x) * Pack<T>::kSize;
  }
};

// The sums of a block's rows: out of registers where the block has one row at a time; else each warp lays its
// own into shared memory, and all threads add them up, warp by warp, and write whole sectors.
template <int kPacks, int N>
__device__ void put_partial(const float (&dw)[kPacks][N], int64_t cols, float* out) {
  extern __shared__ float4 sums[];  // [rows at a time][cols / 4]; only where there are several
  const int64_t quads = cols / 4;
  float4* own = blockDim.y > 1 ? sums + threadIdx.y * quads : reinterpret_cast<float4*>(out);
  if (blockDim.y > 1) __syncthreads();  // whoever still reads the sums of another gradient
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int64_t at = (threadIdx.x + static_cast<int64_t>(k) * blockDim.x) * N;
    if (at >= cols) continue;
#pragma unroll
    for (int i = 0; i < N; i += 4) own[(at + i) / 4] = {dw[k][i], dw[k][i + 1], dw[k][i + 2], dw[k][i + 3]};
  }
  if (blockDim.y == 1) return;
  __syncthreads();
  for (int64_t q = threadIdx.y * blockDim.x + threadIdx.x; q < quads; q += blockDim.x * blockDim.y) {
    float4 sum = sums[q];
    for (unsigned w = 1; w < blockDim.y; ++w) {
      const float4 more = sums[w * quads + q];
      sum = {sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w};
    }
    reinterpret_cast<float4*>(out)[q] = sum;
  }
}

inline constexpr int kSumCols = 32, kSumRows = 32;

// dw[c] = sum over the blocks' partial sums: 32 threads take every 32nd of them each, and meet in order.
template <class G>
__global__ void sum_partials_kernel(const float* partial, int64_t blocks, int64_t cols, G* dweight,
                                    bool accumulate) {
  __shared__ float sums[kSumRows][kSumCols];
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kSumCols + threadIdx.x;
  float sum = 0;
  if (c < cols) {
    for (int64_t b = threadIdx.y; b < blocks; b += kSumRows) sum += partial[b * cols + c];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || c >= cols) return;
  for (int k = 1; k < kSumRows; ++k) sum += sums[k][threadIdx.x];
  put_grad(dweight[c], sum, accumulate);
}

// dw (+)= the sum of the blocks' partial sums [blocks, cols]; T is the type of the activations.
template <class T>
void sum_partials(const float* partial, int64_t blocks, int64_t cols, const GradSlot& dweight,
                  Stream stream) {
  with_grad_dtype<T>(dweight.tensor.dtype(), [&](auto grad) {
    using G = decltype(grad);
    launch(sum_partials_kernel<G>, Grid(blocks_for(cols, kSumCols)), dim3(kSumCols, kSumRows), 0, stream,
           partial, blocks, cols, dweight.tensor.data<G>(), dweight.accumulate);
  });
}

// Calls f with the number of packs as a constant.
template <class F>
void with_packs(int packs, F f) {
  if (packs == 1) return f(std::integral_constant<int, 1>{});
  if (packs == 2) return f(std::integral_constant<int, 2>{});
  if (packs == 3) return f(std::integral_constant<int, 3>{});
  f(std::integral_constant<int, 4>{});
}

inline dim3 block_of(const RowGroups& g) {
  return {static_cast<unsigned>(g.threads), static_cast<unsigned>(g.rows_per_block)};
}

// Shared memory of put_partial.
inline std::size_t partial_shared_bytes(const RowGroups& g, int64_t cols) {
  return g.rows_per_block > 1 ? static_cast<std::size_t>(g.rows_per_block * cols) * sizeof(float) : 0;
}

}  // namespace kiln
