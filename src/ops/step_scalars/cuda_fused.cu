// fused: the sum of squares at the memory's speed. Sixteen bytes at a time, four such packs in flight in a
// thread; few blocks, each walking the whole range in steps, so that the second kernel has few sums to add.
// Squares are taken and summed in double, where those of floats are exact: an H200 widens 16 floats a clock
// and multiprocessor, 3.6e12 a second, and its memory brings 2.1e12 bf16 ones or half as many fp32.
// Memory bound: every gradient read once, count * element size bytes.
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/rows.cuh"
#include "ops/cuda_device/vector.cuh"
#include "ops/step_scalars/cuda_sum.cuh"

namespace kiln {
namespace {

constexpr int kPacks = 4;

__device__ double square(float g) { return static_cast<double>(g) * static_cast<double>(g); }

template <class T>
struct Ranges {
  int number = 0;
  const T* grads[SquareSumOp::kRanges];
  int64_t count[SquareSumOp::kRanges];
};

// Tiles of kPacks packs a thread go round-robin to the blocks, across all ranges: many small
// ranges keep the blocks as busy as a large one. What fills no pack, and a range that begins at an odd place,
// is read element by element.
template <class T>
__global__ void block_squares_kernel(const __grid_constant__ Ranges<T> ranges, double* partial) {
  constexpr int N = Pack<T>::kSize;
  const int64_t tile = static_cast<int64_t>(kPacks) * blockDim.x, step = gridDim.x * tile;
  double sum[kPacks] = {};  // apart, since an addition takes longer than a load brings the next
  unsigned turn = 0;        // the block that has a range's first tile
  for (int r = 0; r < ranges.number; ++r) {
    const T* const grads = ranges.grads[r];
    const int64_t count = ranges.count[r];
    const int64_t packs = reinterpret_cast<std::uintptr_t>(grads) % 16 == 0 ? count / N : 0;
    const unsigned mine = blockIdx.x >= turn ? blockIdx.x - turn : blockIdx.x + gridDim.x - turn;
    for (int64_t first = mine * tile + threadIdx.x; first < packs; first += step) {
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
    turn = static_cast<unsigned>((turn + (packs + tile - 1) / tile) % gridDim.x);
  }
  const double all = block_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
  if (threadIdx.x == 0) partial[blockIdx.x] = all;
}

template <class T>
Ranges<T> ranges_of(std::span<const Tensor> grads) {
  Ranges<T> all;
  for (const Tensor& range : grads) {
    all.grads[all.number] = range.data<T>();
    all.count[all.number++] = range.numel();
  }
  return all;
}

}  // namespace

void square_sum_cuda_fused(RankContext& ctx, const SquareSumForward& f) {
  const Stream stream = cuda_stream(ctx);
  const int64_t blocks = SquareSumOp::blocks(f.p), launches = SquareSumOp::launches(f.p);
  auto* const partial = reinterpret_cast<double*>(f.workspace.raw());
  with_narrow_gpu_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t k = 0; k < launches; ++k) {
      const auto rest = f.grads.subspan(static_cast<std::size_t>(k * SquareSumOp::kRanges));
      const auto now = rest.first(std::min<std::size_t>(rest.size(), SquareSumOp::kRanges));
      launch(block_squares_kernel<T>, Grid(blocks), kThreads, 0, stream, ranges_of<T>(now),
             partial + k * blocks);
    }
  });
  launch(sum_partial_squares_kernel, Grid(1), kThreads, 0, stream, partial, launches * blocks,
         record_of(f.scalars));
}

}  // namespace kiln
