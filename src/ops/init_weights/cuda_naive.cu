// naive: the readable baseline. One thread per weight, the same bits as on the CPU (see base/rng.h).
// Writes each weight once, count * element size bytes, but is compute bound: about 90 operations a value. It
// runs once, at the start.
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/rows.cuh"
#include "ops/init_weights/init_weights.h"

namespace kiln {
namespace {

template <class T>
__global__ void init_weights_kernel(InitWeightsProblem p, T* w, int16_t* low, ParamInit init, PhiloxKey key,
                                    int64_t first, WeightSlice slice) {
  const int64_t i = flat_index();
  if (i >= p.count) return;
  const float value = drawn_weight(init, key, slice.at(first + i));
  if constexpr (std::is_same_v<T, bf16>) {
    if (low != nullptr) {
      const SplitFloat s = split_float(value);
      w[i] = s.high;
      low[i] = s.low;
      return;
    }
  }
  w[i] = from_accum<T>(value);
}

}  // namespace

void init_weights_cuda_naive(RankContext& ctx, const InitWeightsForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(init_weights_kernel<T>, flat_grid(f.p.count), kThreads, 0, cuda_stream(ctx), f.p, f.flat.data<T>(),
           f.p.split ? f.low.data<int16_t>() : nullptr, f.init, f.key, f.first, f.slice);
  });
}

}  // namespace kiln
