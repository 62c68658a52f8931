// fused: a block turns the tokens of one position, of up to four sequences. Their angles are computed once,
// into shared memory, and serve every head of q and k; the values then move sixteen bytes at a time. In place
// where the output is the input: every thread reads both halves of its pairs before it writes either.
// Memory bound: q and k read and written once, in either direction.
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/rows.cuh"
#include "ops/cuda_device/vector.cuh"
#include "ops/rope/rope.h"

namespace kiln {
namespace {

constexpr int kRopeThreads = 128;
constexpr int kSequences = 4;
constexpr int kUnderWay = 3;  // pieces of a thread

struct Frequencies {  // of one head's pairs: by value, so that they are at hand without a read from memory
  double of[kRopeMostPairs];
};

template <class T>
struct RopeSide {
  RowView<T> in, out;  // out null: not wanted
  bool accumulate;
  int heads;
};

// What a thread turns at a time: a pack of first halves and the pack of their partners (rotate-half: pair i
// is elements i and i + D / 2 of a head), or one pack of neighbours (interleaved).
template <class T>
struct Piece {
  T* out = nullptr;  // null: nothing
  Pack<T> a, b;
  int pair;  // of a's first element
  bool accumulate;
};

template <class T>
__device__ Piece<T> load_piece(const RopeSide<T>& side, int64_t row, int work, int D, bool interleaved) {
  constexpr int N = Pack<T>::kSize;
  const int packs = interleaved ? D / N : D / 2 / N, pack = work % packs;
  const int at = work / packs * D + pack * N;
  Piece<T> p;
  p.out = side.out[row] + at;
  p.a = load_pack(side.in[row] + at);
  if (!interleaved) p.b = load_pack(side.in[row] + at + D / 2);
  p.pair = interleaved ? pack * N / 2 : pack * N;
  p.accumulate = side.accumulate;
  return p;
}

template <class T>
__device__ void turn(const Piece<T>& p, int D, bool interleaved, const float2* angles) {
  constexpr int N = Pack<T>::kSize;
  float x[N], y[N];
  if (interleaved) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      const float2 angle = angles[p.pair + i / 2];  // cosine, sine
      x[i] = p.a[i] * angle.x - p.a[i + 1] * angle.y;
      x[i + 1] = p.a[i] * angle.y + p.a[i + 1] * angle.x;
    }
    put_pack(p.out, x, p.accumulate);
    return;
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float2 angle = angles[p.pair + i];
    x[i] = p.a[i] * angle.x - p.b[i] * angle.y;
    y[i] = p.a[i] * angle.y + p.b[i] * angle.x;
  }
  put_pack(p.out, x, p.accumulate);
  put_pack(p.out + D / 2, y, p.accumulate);
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
__global__ void rope_fused_kernel(RopeProblem p, float sign, Frequencies frequencies, RopeSide<T> q,
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
  // All pieces of q, then of k, of one sequence after the other; a few in flight at a time.
  const int per_head = (p.interleaved ? D : D / 2) / Pack<T>::kSize;
  const int of_q = q.out ? q.heads * per_head : 0, of_both = of_q + (k.out ? k.heads * per_head : 0);
  const int all = of_both * static_cast<int>(end - first);
  for (int work = threadIdx.x; work < all; work += kUnderWay * kRopeThreads) {
    Piece<T> piece[kUnderWay];
#pragma unroll
    for (int u = 0; u < kUnderWay; ++u) {
      const int w = work + u * kRopeThreads;
      if (w >= all) continue;
      const int64_t row = (first + w / of_both) * p.T + t;
      const int own = w % of_both;
      piece[u] = own < of_q ? load_piece(q, row, own, D, p.interleaved)
                            : load_piece(k, row, own - of_q, D, p.interleaved);
    }
#pragma unroll
    for (int u = 0; u < kUnderWay; ++u) {
      if (piece[u].out != nullptr) turn(piece[u], D, p.interleaved, angles);
    }
  }
}

}  // namespace

void rope_cuda_fused(RankContext& ctx, const RopeRotation& f) {
  Frequencies frequencies{};
  for (int64_t i = 0; i < f.p.pairs(); ++i) frequencies.of[i] = rope_frequency(f.p, i);
  with_narrow_gpu_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const RopeSide<T> q{row_view<T>(f.q), row_view<T>(f.q_out.tensor), f.q_out.accumulate,
                        static_cast<int>(f.p.H)};
    const RopeSide<T> k{row_view<T>(f.k), row_view<T>(f.k_out.tensor), f.k_out.accumulate,
                        static_cast<int>(f.p.Hkv)};
    launch(rope_fused_kernel<T>, Grid(f.p.T * blocks_for(f.p.B, kSequences)), kRopeThreads, 0,
           cuda_stream(ctx), f.p, static_cast<float>(f.sign), frequencies, q, k);
  });
}

}  // namespace kiln
