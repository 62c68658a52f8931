// The lower steps of attention's ladder, in bf16, heads up to 128 wide: each row of the op's table is one of
// these, so that what a step buys is a measurement away (kiln bench op attention --variant all).
//
//   naive         the scores in memory                                        naive/cuda_naive.cu
//   tiled         online softmax: a tile of keys at a time in shared memory, no matrix of scores
//   tiled_skip    + tiles that no query of a block sees are skipped: half of a long causal sequence's
//   tiled_split   + indices are compared only on tiles that the diagonal or an end crosses
//   tiled_async   + tiles are copied by cp.async while the tile before is worked on
//   flash         + the matmuls on the tensor cores                           flash/flash.cu
//
// tiled_atomic is tiled_async with another backward: one kernel instead of two, five matmuls instead of
// seven. A block of keys adds its part of every query's gradient to fp32 sums in memory, by atomics, in
// whatever order blocks come: bits may differ from run to run.
//
// Roofline: as flash, 4 D forward and 10 D backward operations per seen pair and head, but by plain
// multiply-adds (67 TFLOP/s on an H200 where its tensor cores do 990). Values are widened where they are
// read, which costs an operation for every two to four multiply-adds.
#include "ops/attention/tiled/backward.cuh"
#include "ops/attention/tiled/forward.cuh"

namespace kiln {
namespace {

struct Tiled {
  static constexpr bool kSkip = false, kSplit = false, kAsync = false, kAtomic = false;
};
struct TiledSkip : Tiled {
  static constexpr bool kSkip = true;
};
struct TiledSplit : TiledSkip {
  static constexpr bool kSplit = true;
};
struct TiledAsync : TiledSplit {
  static constexpr bool kAsync = true;
};
struct TiledAtomic : TiledAsync {
  static constexpr bool kAtomic = true;
};

template <class F>
void with_width(int64_t D, F f) {
  D <= 64 ? f(std::integral_constant<int, 64>{}) : f(std::integral_constant<int, 128>{});
}

template <tiled::LadderStep Step>
void forward(RankContext& ctx, const AttentionForward& f) {
  with_width(f.p.D,
             [&](auto width) { tiled::run_forward<Step, bf16, tiled::StepForwardTiles<width>>(ctx, f); });
}

template <tiled::LadderStep Step>
void backward(RankContext& ctx, const AttentionBackward& b) {
  with_width(b.p.D, [&](auto width) {
    tiled::run_backward<Step, bf16, tiled::BackwardTiles<width, false>>(ctx, b);
  });
}

// Before the sums: delta of every query, and zeros for its gradient. A warp to a query of a head.
__global__ void tiled_prepare_kernel(AttentionProblem p, tiled::BackwardRows<bf16> rows) {
  const int64_t row = flat_index() / 32;
  if (row >= p.B * p.H * p.Tq) return;
  const int64_t i = row % p.Tq, h = row / p.Tq % p.H, b = row / p.Tq / p.H;
  const tiled::Sequence at(p, rows.sequences, static_cast<int>(b));
  const float delta = tiled::make_delta<32>(p, rows, at, static_cast<int>(h), static_cast<int>(i));
  if (threadIdx.x % 32 == 0) rows.delta[row] = delta;
  float* sums = rows.dq_accum + ((b * p.Tq + i) * p.H + h) * p.D;
  for (int64_t c = threadIdx.x % 32; c < p.D; c += 32) sums[c] = 0;
}

// After them: scaled and rounded, to where dq stands.
__global__ void tiled_finish_query_kernel(AttentionProblem p, tiled::BackwardRows<bf16> rows) {
  const int64_t at = flat_index();
  if (at >= p.B * p.Tq * p.H * p.D) return;
  const int64_t channel = at % (p.H * p.D), row = at / (p.H * p.D);
  bf16& to = rows.dq.at(row / p.Tq, 0, p.D, row % p.Tq)[channel];
  put_grad(to, rows.dq_accum[at] * p.scale, rows.dq.accumulate);
}

}  // namespace

void attention_cuda_tiled_forward(RankContext& ctx, const AttentionForward& f) { forward<Tiled>(ctx, f); }
void attention_cuda_tiled_backward(RankContext& ctx, const AttentionBackward& b) { backward<Tiled>(ctx, b); }

void attention_cuda_tiled_skip_forward(RankContext& ctx, const AttentionForward& f) {
  forward<TiledSkip>(ctx, f);
}
void attention_cuda_tiled_skip_backward(RankContext& ctx, const AttentionBackward& b) {
  backward<TiledSkip>(ctx, b);
}

void attention_cuda_tiled_split_forward(RankContext& ctx, const AttentionForward& f) {
  forward<TiledSplit>(ctx, f);
}
void attention_cuda_tiled_split_backward(RankContext& ctx, const AttentionBackward& b) {
  backward<TiledSplit>(ctx, b);
}

void attention_cuda_tiled_async_forward(RankContext& ctx, const AttentionForward& f) {
  forward<TiledAsync>(ctx, f);
}
void attention_cuda_tiled_async_backward(RankContext& ctx, const AttentionBackward& b) {
  backward<TiledAsync>(ctx, b);
}

void attention_cuda_tiled_atomic_backward(RankContext& ctx, const AttentionBackward& b) {
  const AttentionProblem& p = b.p;
  const Stream stream = cuda_stream(ctx);
  const auto rows = tiled::backward_rows<bf16>(b);
  launch(tiled_prepare_kernel, flat_grid(p.B * p.H * p.Tq * 32), kThreads, 0, stream, p, rows);
  with_width(p.D, [&](auto width) {
    tiled::run_grad_key<TiledAtomic, bf16, tiled::BackwardTiles<width, false>>(ctx, b);
  });
  if (b.dq.wanted())
    launch(tiled_finish_query_kernel, flat_grid(p.B * p.Tq * p.H * p.D), kThreads, 0, stream, p, rows);
}

}  // namespace kiln
