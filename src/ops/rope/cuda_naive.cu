// naive: the readable baseline. One thread per pair of a row computes its angle in double and turns it in all
// heads of q and k. Memory bound: q and k read and written once, in either direction.
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/rows.cuh"
#include "ops/rope/rope.h"

namespace kiln {
namespace {

template <class T>
struct RopeSide {
  RowView<T> in, out;  // out null: not wanted
  bool accumulate;
  int64_t heads;
};

template <class T>
__device__ void turn(const RopeProblem& p, const RopeSide<T>& side, int64_t row, int64_t pair,
                     Accum<T> cosine, Accum<T> sine) {
  if (!side.out) return;
  for (int64_t h = 0; h < side.heads; ++h) {
    const int64_t first = h * p.D + (p.interleaved ? 2 * pair : pair);
    const int64_t second = first + (p.interleaved ? 1 : p.D / 2);
    const Accum<T> a = to_accum(side.in[row][first]), b = to_accum(side.in[row][second]);
    put_grad(side.out[row][first], a * cosine - b * sine, side.accumulate);
    put_grad(side.out[row][second], a * sine + b * cosine, side.accumulate);
  }
}

template <class T>
__global__ void rope_kernel(RopeProblem p, double sign, RopeSide<T> q, RopeSide<T> k) {
  const int64_t row = blockIdx.x;
  for (int64_t i = first_column(); i < p.D / 2; i += column_step()) {
    const double angle = static_cast<double>(p.offset + row % p.T) * rope_frequency(p, i);
    const Accum<T> cosine = static_cast<Accum<T>>(cos(angle)),
                   sine = static_cast<Accum<T>>(sign * sin(angle));
    turn(p, q, row, i, cosine, sine);
    turn(p, k, row, i, cosine, sine);
  }
}

}  // namespace

void rope_cuda_naive(RankContext& ctx, const RopeRotation& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const RopeSide<T> q{row_view<T>(f.q), row_view<T>(f.q_out.tensor), f.q_out.accumulate, f.p.H};
    const RopeSide<T> k{row_view<T>(f.k), row_view<T>(f.k_out.tensor), f.k_out.accumulate, f.p.Hkv};
    launch(rope_kernel<T>, matrix_grid(f.p.rows(), f.p.D / 2), kThreads, 0, cuda_stream(ctx), f.p, f.sign, q,
           k);
  });
}

}  // namespace kiln
