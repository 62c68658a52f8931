// fused: for a chunk of rows at a time, logits = x W^T, then one kernel that takes each row's loss and
// overwrites the row with its gradient, then dx = dlogits W and dW += dlogits^T x in fp32. The next chunk
// takes the same memory. Backward multiplies dx and dW by dloss / count, which stay on the GPU.
// Compute bound: the three matmuls. Also each logit is written by its matmul, read and overwritten once here,
// and read by two matmuls, where composed also keeps logits and gradient whole.
#include "device/cuda/lt_matmul.h"
#include "ops/cross_entropy/cuda_rows.cuh"
#include "ops/cuda_device/rank.h"
#include "ops/linear_cross_entropy/cuda_chunks.h"

namespace kiln {
namespace {

using namespace loss_rows;
using Problem = LinearCrossEntropyProblem;

template <class T>
struct LogitsChunk {
  RowView<T> logits;  // becomes its gradient where that is wanted; rows begin at multiples of 16 bytes
  int64_t vocab;
  const int32_t* targets;
  float* losses;
  bool gradient;

  // For the whole block; true where the row is done with.
  __device__ bool ignored() const {
    const int64_t r = blockIdx.x;
    if (targets[r] != kIgnoreTarget) return false;
    if (threadIdx.x == 0) losses[r] = 0;
    if (!gradient) return true;
    T* row = logits[r];
    const RowParts<T> parts(row, vocab);
    for (int64_t i = threadIdx.x; i < parts.packs; i += blockDim.x)
      store_pack(row + parts.column(i), Pack<T>{});
    for (int64_t i = threadIdx.x; i < parts.tail; i += blockDim.x)
      row[parts.tail_begin() + i] = from_accum<T>(0.0f);
    return true;
  }
  // Every thread asks before the first barrier: afterwards the logit may be its gradient already.
  __device__ float target_logit() const {
    const int32_t t = targets[blockIdx.x];
    return t >= 0 && t < vocab ? to_accum(logits[blockIdx.x][t]) : NAN;
  }
};

// Rows short enough for the block's registers: one read, one write. A thread holds kPacks packs and at most
// one element of the rest.
template <class T, int kPacks>
__global__ void __launch_bounds__(1024) held_row_kernel(LogitsChunk<T> c) {
  if (c.ignored()) return;
  T* row = c.logits[blockIdx.x];
  const RowParts<T> parts(row, c.vocab);
  const bool has_rest = threadIdx.x < parts.tail;
  const int64_t rest_column = parts.tail_begin() + threadIdx.x;
  Pack<T> packs[kPacks];
  load_packs(packs, row, threadIdx.x, parts.packs);
  const float rest = has_rest ? to_accum(row[rest_column]) : -INFINITY;
  const float target_logit = c.target_logit();
  OnlineSum<T> sum;
  sum.add(packs);
  sum.add(rest);
  const float lse = sum.block_lse();
  if (threadIdx.x == 0) c.losses[blockIdx.x] = lse - target_logit;
  if (!c.gradient) return;
  const RowGradient<T> gradient{lse, 1, c.targets[blockIdx.x]};
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int64_t at = threadIdx.x + static_cast<int64_t>(k) * blockDim.x;
    if (at >= parts.packs) break;
    float g[Pack<T>::kSize];
    gradient.of_pack(packs[k], parts.column(at), g);
    store_pack(row + parts.column(at), Pack<T>::of(g));
  }
  if (has_rest) row[rest_column] = from_accum<T>(gradient.at(rest, rest_column));
}

// Longer rows are read twice. The second read goes backwards: what was read last is still in the cache.
template <class T>
__global__ void __launch_bounds__(1024) long_row_kernel(LogitsChunk<T> c) {
  if (c.ignored()) return;
  T* row = c.logits[blockIdx.x];
  const float target_logit = c.target_logit();
  const float lse = row_lse(row, c.vocab);
  if (threadIdx.x == 0) c.losses[blockIdx.x] = lse - target_logit;
  if (!c.gradient) return;
  const RowGradient<T> gradient{lse, 1, c.targets[blockIdx.x]};
  const RowParts<T> parts(row, c.vocab);
  for (int64_t i = parts.tail_begin() + threadIdx.x; i < c.vocab; i += blockDim.x)
    row[i] = from_accum<T>(gradient.at(to_accum(row[i]), i));
  const int64_t round = int64_t{kAhead} * blockDim.x;
  for (int64_t begin = (parts.packs - 1) / round * round; begin >= 0; begin -= round) {
    const int64_t first = begin + threadIdx.x;
    Pack<T> packs[kAhead];
    load_packs(packs, row, first, parts.packs);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int64_t at = first + static_cast<int64_t>(k) * blockDim.x;
      if (at >= parts.packs) break;
      float g[Pack<T>::kSize];
      gradient.of_pack(packs[k], parts.column(at), g);
      store_pack(row + parts.column(at), Pack<T>::of(g));
    }
  }
}

// A block holds up to 64 KiB, four packs a thread; with eight the registers spill.
template <class T>
void take_losses(const LogitsChunk<T>& chunk, int64_t rows, Stream stream) {
  constexpr int kHeld = 4;
  const int64_t packs = chunk.vocab / Pack<T>::kSize;
  if (packs <= kHeld * 1024)
    return launch(held_row_kernel<T, kHeld>, Grid(rows), threads_for(packs, kHeld), 0, stream, chunk);
  launch(long_row_kernel<T>, Grid(rows), 1024, 0, stream, chunk);
}

constexpr int kPieces = 4, kPiece = 4;  // pieces of four elements in flight in a thread

// to = (or +=) dloss / count * saved
template <int kWide, class S, class G>
__global__ void scale_kernel(const S* saved, const float* dloss, const float* count, G* to, int64_t n,
                             bool accumulate) {
  const float factor = *count == 0 ? 0 : *dloss / *count;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * blockDim.x * kPieces;
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    const int64_t i = (begin + static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * kWide;
    if (i >= n) return;
    const auto from = load_wide<kWide>(saved + i);
    Wide<G, kWide> out{};
    if (accumulate) out = load_wide<kWide>(to + i);
#pragma unroll
    for (int j = 0; j < kWide; ++j) {
      float value = factor * to_accum(from.v[j]);
      if (accumulate) value += to_accum(out.v[j]);
      out.v[j] = from_accum<G>(value);
    }
    store_wide(to + i, out);
  }
}

template <class S, class G>
void scaled(RankContext& ctx, const LinearCrossEntropyBackward& b, const Tensor& saved,
            const GradSlot& slot) {
  const S* from = saved.data<S>();
  G* to = slot.tensor.data<G>();
  const int64_t n = slot.tensor.numel();
  const bool whole = n % kPiece == 0 && reinterpret_cast<std::uintptr_t>(from) % (kPiece * sizeof(S)) == 0 &&
                     reinterpret_cast<std::uintptr_t>(to) % (kPiece * sizeof(G)) == 0;
  const auto go = [&](auto kernel, int wide) {
    launch(kernel, Grid(blocks_for(n, int64_t{kThreads} * kPieces * wide)), kThreads, 0, cuda_stream(ctx),
           from, b.dloss.data<float>(), b.count.data<float>(), to, n, slot.accumulate);
  };
  if (whole) return go(scale_kernel<kPiece, S, G>, kPiece);
  go(scale_kernel<1, S, G>, 1);
}

// The three matmuls of `rows` rows from `first` on; the chunk's logits lie at `logits`.
struct ChunkProducts {
  RankContext& ctx;
  const LinearCrossEntropyForward& f;
  std::byte* logits;
  int64_t stride, first, rows;

  const std::byte* x() const {
    return f.x.raw() + first * f.x.row_stride() * static_cast<int64_t>(size_of(f.p.dtype));
  }
  void run(const LtMatmul& product) const {
    const Tensor& workspace = ctx.gemm_workspace();
    cuda_backend(ctx).matmuls().run(product, workspace.raw(), workspace.bytes().value, ctx.compute());
  }
  void make_logits() const {
    run({.m = rows,
         .n = f.p.vocab,
         .k = f.p.in,
         .in = f.p.dtype,
         .a = {x(), f.x.row_stride(), false},
         .b = {f.weight.raw(), f.weight.row_stride(), true},
         .out = f.p.dtype,
         .d = logits,
         .d_row_stride = stride});
  }
  void make_dx() const {
    run({.m = rows,
         .n = f.p.in,
         .k = f.p.vocab,
         .in = f.p.dtype,
         .a = {logits, stride, false},
         .b = {f.weight.raw(), f.weight.row_stride(), false},
         .out = f.p.dtype,
         .d = f.dx.raw() + first * f.dx.row_stride() * static_cast<int64_t>(size_of(f.p.dtype)),
         .d_row_stride = f.dx.row_stride()});
  }
  void add_to_dweight() const {
    run({.m = f.p.vocab,
         .n = f.p.in,
         .k = rows,
         .in = f.p.dtype,
         .a = {logits, stride, true},
         .b = {x(), f.x.row_stride(), false},
         .out = DType::f32,
         .d = f.dweight.raw(),
         .d_row_stride = f.dweight.row_stride(),
         .accumulate = first > 0});
  }
};

}  // namespace

void linear_cross_entropy_cuda_fused_forward(RankContext& ctx, const LinearCrossEntropyForward& f) {
  const Problem& p = f.p;
  const Stream stream = cuda_stream(ctx);
  const CudaLossChunks chunks(p);
  std::byte* logits = chunks.total > 0 ? f.workspace.raw() : nullptr;
  float* losses = reinterpret_cast<float*>(logits + chunks.losses);
  const int32_t* targets = f.targets.data<int32_t>();
  for (int64_t first = 0; first < p.rows; first += chunks.rows) {
    const int64_t rows = std::min(chunks.rows, p.rows - first);
    const ChunkProducts products{ctx, f, logits, chunks.row_stride, first, rows};
    products.make_logits();
    with_narrow_gpu_float(p.dtype, [&](auto zero) {
      using T = decltype(zero);
      take_losses<T>({{reinterpret_cast<T*>(logits), chunks.row_stride},
                      p.vocab,
                      targets + first,
                      losses + first,
                      p.dx || p.dweight},
                     rows, stream);
    });
    if (p.dx) products.make_dx();
    if (p.dweight) products.add_to_dweight();
  }
  // With no rows the result is zero, and must still be written.
  if (p.rows == 0 && p.dweight) ChunkProducts{ctx, f, logits, chunks.row_stride, 0, 0}.add_to_dweight();
  launch(mean_loss_kernel<float>, Grid(1), 1024, 0, stream, p.rows, targets, losses, f.loss.data<float>(),
         f.count.defined() ? f.count.data<float>() : nullptr);
}

void linear_cross_entropy_cuda_fused_backward(RankContext& ctx, const LinearCrossEntropyBackward& b) {
  with_narrow_gpu_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (b.dx.wanted()) scaled<T, T>(ctx, b, b.saved_dx, b.dx);
    if (!b.dweight.wanted()) return;
    with_grad_dtype<T>(b.dweight.tensor.dtype(),
                       [&](auto grad) { scaled<float, decltype(grad)>(ctx, b, b.saved_dweight, b.dweight); });
  });
}

}  // namespace kiln
