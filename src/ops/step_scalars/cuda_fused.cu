// fused: the sum of squares at the memory's speed. Sixteen bytes at a time, four such packs under way in a
// thread; few blocks, each walking the whole range in steps, so that the second kernel has few sums to add.
// Squares are taken and summed in double, where those of floats are exact: an H200 widens 16 floats a clock
// and multiprocessor, 3.6e12 a second, and its memory brings 2.1e12 bf16 ones or half as many fp32.
// Floor: every gradient read once, count * element size bytes.
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/rows.cuh"
#include "ops/cuda_device/vector.cuh"
#include "ops/step_scalars/cuda_sum.cuh"

namespace kiln {
namespace {

constexpr int kPacks = 4;

__device__ double square(float g) { return static_cast<double>(g) * static_cast<double>(g); }

// `packs` of them, then what is left element by element; none where the range begins at an odd place.
template <class T>
__global__ void block_squares_kernel(const T* grads, int64_t count, int64_t packs, double* partial) {
  constexpr int N = Pack<T>::kSize;
  double sum[kPacks] = {};  // apart, since an addition takes longer than a load brings the next
  const int64_t step = static_cast<int64_t>(gridDim.x) * kPacks * blockDim.x;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kPacks * blockDim.x + threadIdx.x; first < packs;
       first += step) {
    Pack<T> pack[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int64_t at = first + static_cast<int64_t>(k) * blockDim.x;
      pack[k] = at < packs ? stream_load_pack(grads + at * N) : Pack<T>{};
    }
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int i = 0; i < N; ++i) sum[k] += square(pack[k][i]);
    }
  }
  for (int64_t i = packs * N + flat_index(); i < count; i += static_cast<int64_t>(gridDim.x) * blockDim.x)
    sum[0] += square(static_cast<float>(grads[i]));
  const double all = block_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
  if (threadIdx.x == 0) partial[blockIdx.x] = all;
}

}  // namespace

void square_sum_cuda_fused(RankContext& ctx, const SquareSumForward& f) {
  const Stream stream = cuda_stream(ctx);
  const int64_t blocks = SquareSumOp::blocks(f.p);
  auto* partial = reinterpret_cast<double*>(f.workspace.raw());
  with_narrow_gpu_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* grads = f.grads.data<T>();
    const bool aligned = reinterpret_cast<std::uintptr_t>(grads) % 16 == 0;
    launch(block_squares_kernel<T>, Grid(blocks), kThreads, 0, stream, grads, f.p.count,
           aligned ? f.p.count / Pack<T>::kSize : 0, partial);
  });
  launch(sum_partial_squares_kernel, Grid(1), kThreads, 0, stream, partial, blocks, record_of(f.scalars),
         f.p.add);
}

}  // namespace kiln
