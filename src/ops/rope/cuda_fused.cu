// fused: a block turns the tokens of one position, of up to four sequences. Their angles are computed once,
// into shared memory, and serve every head of q and k; the values then move sixteen bytes at a time. In place
// where the output is the input: every thread reads both halves of its pairs before it writes either.
// Floor: q and k read and written once, in either direction.
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/rows.cuh"
#include "ops/cuda_device/vector.cuh"
#include "ops/rope/rope.h"

namespace kiln {
namespace {

constexpr int kRopeThreads = 128;
constexpr int kSequences = 4;

struct Frequencies {  // of one head's pairs: by value, so that they are at hand without a read from memory
  double of[kRopeMostPairs];
};

template <class T>
struct RopeSide {
  RowView<T> in, out;  // out null: not wanted
  bool accumulate;
  int heads;
};

// Rotate-half: pair i is elements i and i + D / 2, so a thread has a pack of each.
template <class T>
__device__ void turn_halves(const RopeSide<T>& side, int64_t row, int D, const float2* angles) {
  constexpr int N = Pack<T>::kSize;
  const int packs = D / 2 / N;
  for (int work = threadIdx.x; work < side.heads * packs; work += kRopeThreads) {
    const int first = work / packs * D + work % packs * N, second = first + D / 2;
    const Pack<T> a = load_pack(side.in[row] + first), b = load_pack(side.in[row] + second);
    float x[N], y[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float2 angle = angles[work % packs * N + i];  // cosine, sine
      x[i] = a[i] * angle.x - b[i] * angle.y;
      y[i] = a[i] * angle.y + b[i] * angle.x;
    }
    put_pack(side.out[row] + first, x, side.accumulate);
    put_pack(side.out[row] + second, y, side.accumulate);
  }
}

// Interleaved: pairs are neighbours, so a thread has half a pack of them.
template <class T>
__device__ void turn_neighbours(const RopeSide<T>& side, int64_t row, int D, const float2* angles) {
  constexpr int N = Pack<T>::kSize;
  const int packs = D / N;
  for (int work = threadIdx.x; work < side.heads * packs; work += kRopeThreads) {
    const int at = work / packs * D + work % packs * N;
    const Pack<T> a = load_pack(side.in[row] + at);
    float x[N];
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      const float2 angle = angles[(work % packs * N + i) / 2];
      x[i] = a[i] * angle.x - a[i + 1] * angle.y;
      x[i + 1] = a[i] * angle.y + a[i + 1] * angle.x;
    }
    put_pack(side.out[row] + at, x, side.accumulate);
  }
}

// Cosine and sine. Reduced in double, since an angle may be thousands of turns; for 16-bit values the rest in
// fp32, whose sine is off by one unit in the last place where a double's takes ten times as long.
template <class T>
__device__ float2 angle_of(double position, double frequency) {
  if constexpr (sizeof(T) == 4) {
    double sine, cosine;
    sincos(position * frequency, &sine, &cosine);
    return {static_cast<float>(cosine), static_cast<float>(sine)};
  } else {
    const double turns = position * frequency * (0.5 * M_1_PI);
    float2 a;
    sincospif(2 * static_cast<float>(turns - rint(turns)), &a.y, &a.x);
    return a;
  }
}

template <class T>
__global__ void rope_kernel(RopeProblem p, float sign, Frequencies frequencies, RopeSide<T> q,
                            RopeSide<T> k) {
  __shared__ float2 angles[kRopeMostPairs];
  const int64_t t = blockIdx.x % p.T, first = blockIdx.x / p.T * kSequences;
  const int64_t end = first + kSequences < p.B ? first + kSequences : p.B;
  const int D = static_cast<int>(p.D);
  for (int i = threadIdx.x; i < D / 2; i += kRopeThreads) {
    angles[i] = angle_of<T>(static_cast<double>(p.offset + t), frequencies.of[i]);
    angles[i].y *= sign;
  }
  __syncthreads();
  for (int64_t b = first; b < end; ++b) {
    for (const RopeSide<T>* side : {&q, &k}) {
      if (!side->out) continue;
      if (p.interleaved) {
        turn_neighbours(*side, b * p.T + t, D, angles);
      } else {
        turn_halves(*side, b * p.T + t, D, angles);
      }
    }
  }
}

}  // namespace

void rope_cuda_fused(RankContext& ctx, const RopeRotation& f) {
  const int64_t width = f.p.H * f.p.D;
  if (!all_take_packs(width, f.q, f.q_out.tensor) || !all_take_packs(f.p.Hkv * f.p.D, f.k, f.k_out.tensor))
    return rope_cuda_naive(ctx, f);
  Frequencies frequencies{};
  for (int64_t i = 0; i < f.p.pairs(); ++i) frequencies.of[i] = rope_frequency(f.p, i);
  with_narrow_gpu_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const RopeSide<T> q{row_view<T>(f.q), row_view<T>(f.q_out.tensor), f.q_out.accumulate,
                        static_cast<int>(f.p.H)};
    const RopeSide<T> k{row_view<T>(f.k), row_view<T>(f.k_out.tensor), f.k_out.accumulate,
                        static_cast<int>(f.p.Hkv)};
    launch(rope_kernel<T>, Grid(f.p.T * blocks_for(f.p.B, kSequences)), kRopeThreads, 0, cuda_stream(ctx),
           f.p, static_cast<float>(f.sign), frequencies, q, k);
  });
}

}  // namespace kiln
