// fused: one launch over all parameters of a range. Clip factor, moments, bias correction, decay and the
// split of the master weight happen on values in registers, four weights at a time, each read once and
// written once.
// Memory bound: as in cuda_naive.cu, 28 bytes a weight in fp32, 26 with split weights and bf16 gradients, 28
// with fp32 ones.
#include "ops/adamw/adamw.h"
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/rows.cuh"
#include "ops/cuda_device/vector.cuh"

namespace kiln {
namespace {

constexpr int kPieces = 2;  // in flight in a thread

template <class T, class G, class M>
struct AdamWRange {
  T* w;
  int16_t* low;  // null unless split
  const G* g;
  M *m, *v;
};

// The segment that holds element i.
__device__ DecaySegment segment_at(const DecaySegment* segments, int64_t count, int64_t i) {
  int64_t low = 0, high = count - 1;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (segments[middle].end <= i) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return segments[low];
}

template <int kWide, class T, class G, class M>
__device__ void update_piece(const AdamWRange<T, G, M>& range, int64_t i, const AdamWStep<float>& step) {
  auto w = load_wide<kWide>(range.w + i);
  const auto g = load_wide<kWide>(range.g + i);
  auto m = load_wide<kWide>(range.m + i), v = load_wide<kWide>(range.v + i);
  Wide<int16_t, kWide> low{};
  if (range.low != nullptr) low = load_wide<kWide>(range.low + i);
#pragma unroll
  for (int j = 0; j < kWide; ++j) {
    float m_j = static_cast<float>(m.v[j]), v_j = static_cast<float>(v.v[j]);
    const float g_j = static_cast<float>(g.v[j]);
    if constexpr (std::is_same_v<T, bf16>) {
      if (range.low != nullptr) {
        const SplitFloat n = split_float(step.update(join_float(w.v[j], low.v[j]), g_j, m_j, v_j));
        w.v[j] = n.high;
        low.v[j] = n.low;
      } else {
        w.v[j] = static_cast<T>(step.update(static_cast<float>(w.v[j]), g_j, m_j, v_j));
      }
    } else {
      w.v[j] = static_cast<T>(step.update(static_cast<float>(w.v[j]), g_j, m_j, v_j));
    }
    m.v[j] = static_cast<M>(m_j);
    v.v[j] = static_cast<M>(v_j);
  }
  store_wide(range.w + i, w);
  if (range.low != nullptr) store_wide(range.low + i, low);
  store_wide(range.m + i, m);
  store_wide(range.v + i, v);
}

// A piece that a border between segments cuts in two.
template <int kWide, class T, class G, class M>
__device__ void update_one_by_one(const AdamWRange<T, G, M>& range, int64_t i, AdamWStep<float> step,
                                  const DecaySegment* segments, int64_t count) {
  for (int64_t j = i; j < i + kWide; ++j) {
    step.decay = static_cast<float>(segment_at(segments, count, j).decay);
    update_piece<1>(range, j, step);
  }
}

// kWide is 1 where a range begins or ends at an odd place.
template <int kWide, class T, class G, class M>
__global__ void adamw_fused_kernel(AdamWProblem p, AdamWRange<T, G, M> range, const StepScalars* s,
                                   const DecaySegment* segments) {
  if (!s->updates()) return;
  AdamWStep<float> step(p, *s);
  const int64_t block = static_cast<int64_t>(blockDim.x) * kPieces * kWide, begin = blockIdx.x * block;
  // A block's pieces are neighbours, nearly always of one segment: then one search serves them all.
  bool one_segment = true;
  if (segments != nullptr) {
    const DecaySegment first = segment_at(segments, p.segments, begin);
    step.decay = static_cast<float>(first.decay);
    one_segment = first.end >= begin + block;
  }
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    const int64_t i = begin + (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * kWide;
    if (i >= p.count) return;
    if (!one_segment) {
      const DecaySegment own = segment_at(segments, p.segments, i);
      step.decay = static_cast<float>(own.decay);
      if (own.end < i + kWide) {
        update_one_by_one<kWide>(range, i, step, segments, p.segments);
        continue;
      }
    }
    update_piece<kWide>(range, i, step);
  }
}

template <class T>
bool begins_at_a_piece(const T* at) {
  return reinterpret_cast<std::uintptr_t>(at) % (4 * sizeof(T)) == 0;
}

template <class T, class G, class M>
void run(RankContext& ctx, const AdamWForward& f) {
  const AdamWRange<T, G, M> range{f.value.data<T>(), f.p.split ? f.low.data<int16_t>() : nullptr,
                                  f.grad.data<G>(), f.m.data<M>(), f.v.data<M>()};
  const auto* segments = f.p.segments > 0 ? reinterpret_cast<const DecaySegment*>(f.segments.raw()) : nullptr;
  // The store pads every parameter to whole pieces, so only a range cut by hand is not made of them.
  const bool whole = f.p.count % 4 == 0 && begins_at_a_piece(range.w) && begins_at_a_piece(range.low) &&
                     begins_at_a_piece(range.g) && begins_at_a_piece(range.m) && begins_at_a_piece(range.v);
  const auto go = [&](auto kernel, int wide) {
    launch(kernel, Grid(blocks_for(f.p.count, int64_t{kThreads} * kPieces * wide)), kThreads, 0,
           cuda_stream(ctx), f.p, range, reinterpret_cast<const StepScalars*>(f.scalars.raw()), segments);
  };
  if (whole) return go(adamw_fused_kernel<4, T, G, M>, 4);
  go(adamw_fused_kernel<1, T, G, M>, 1);
}

}  // namespace

void adamw_cuda_fused(RankContext& ctx, const AdamWForward& f) {
  with_narrow_gpu_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_grad_dtype<T>(f.p.grad_dtype, [&](auto grad) {
      with_grad_dtype<T>(f.p.state, [&](auto state) { run<T, decltype(grad), decltype(state)>(ctx, f); });
    });
  });
}

}  // namespace kiln
