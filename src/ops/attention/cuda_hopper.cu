// flash_hopper: what the two passes are told, and which shape of block takes which problem.
#include "device/cuda/cuda_check.h"
#include "device/cuda/tensor_map.h"
#include "ops/attention/cuda_hopper_backward.cuh"
#include "ops/attention/hopper/backward_preprocess.cuh"
#include "ops/attention/cuda_hopper_forward.cuh"
#include "ops/attention/cuda_hopper_workspace.h"
#include "ops/attention/tile_choice.h"

namespace kiln {
namespace {

using namespace hopper;

HeadsLayout layout_of(const Tensor& t, const AttentionProblem& p, int64_t heads) {
  const int64_t rows = t.dim(1), row_stride = t.stride(1);
  return {t.raw(), p.dtype,  p.D,        heads,
          rows,    t.dim(0), row_stride, t.dim(0) == 1 ? rows * row_stride : t.stride(0)};
}

int multiprocessors() {  // of the current GPU, which is the rank's
  int device = 0, count = 0;
  KILN_CUDA_CHECK(cudaGetDevice(&device));
  KILN_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

template <class T>
HeadRows<const T> rows_of(const Tensor& t) {
  return {t.data<T>(), t.stride(0), t.stride(1)};
}

template <class Shape>
void run_forward(RankContext& ctx, const AttentionForward& f) {
  using T = typename Shape::T;
  const Stream stream = cuda_stream(ctx);  // makes the rank's GPU current
  const AttentionProblem& p = f.p;
  const int at_once = multiprocessors() * Shape::kBlocks;
  const Parts parts(p, Shape::kQueries, at_once);
  const ForwardArguments<T> a{p,
                              map_of_heads(layout_of(f.q, p, p.H), Shape::kQueries),
                              map_of_heads(layout_of(f.k, p, p.Hkv), Shape::kKeys),
                              map_of_heads(layout_of(f.v, p, p.Hkv), Shape::kKeys),
                              map_of_heads(layout_of(f.o, p, p.H), 64),
                              rows_of<T>(f.q),
                              rows_of<T>(f.k),
                              rows_of<T>(f.v),
                              flash::head_rows<T>(f.o, p.D, false),
                              f.lse.data<float>(),
                              Sizes(p),
                              parts,
                              f.sequences};
  launch(hopper_forward_kernel<Shape>, Grid(p.varied ? parts.count() : std::min(parts.count(), at_once)),
         Shape::kThreads, sizeof(ForwardMemory<Shape>), stream, a);
}

// The kernel of the table's row kRow or a later one, whichever has the tiles asked for.
template <class T, int kD, std::size_t kRow = 0>
void run_forward_with(RankContext& ctx, const AttentionForward& f, const AttentionTiles& tiles) {
  if constexpr (kRow < std::size(kForwardTiles)) {
    constexpr ForwardTiles kTiles = kForwardTiles[kRow];
    if constexpr (kTiles.width == kD) {
      using Shape = ForwardShape<T, kTiles>;
      static_assert(sizeof(ForwardMemory<Shape>) == kTiles.bytes());
      if (tiles == AttentionTiles{kTiles.queries(), kTiles.keys, kTiles.stages})
        return run_forward<Shape>(ctx, f);
    }
    run_forward_with<T, kD, kRow + 1>(ctx, f, tiles);
  } else {
    throw Error(cat("[attention] flash_hopper has no kernel with tiles of ", tiles.str()));
  }
}

// Heads up to 64, 80 and 128 wide; wider ones are refused before this.
template <class F>
void with_shape(const AttentionProblem& p, F f) {
  flash::with_tensor_core_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = hopper_width(p.D);
    if (width == 64) return f(T{}, std::integral_constant<int, 64>{});
    if (width == 80) return f(T{}, std::integral_constant<int, 80>{});
    f(T{}, std::integral_constant<int, 128>{});
  });
}

template <class Shape>
void run_backward(RankContext& ctx, const AttentionBackward& b, bool atomic) {
  using T = typename Shape::T;
  const Stream stream = cuda_stream(ctx);  // makes the rank's GPU current
  const AttentionProblem& p = b.p;
  const HopperWorkspace w(p);
  std::byte* memory = b.workspace.raw();
  auto* lse2 = reinterpret_cast<float*>(memory + w.lse2);
  auto* delta = reinterpret_cast<float*>(memory + w.delta);
  auto* counters = reinterpret_cast<int*>(memory + w.counters);
  const int padded = static_cast<int>(w.padded);
  const DeltaArguments<T> d{p,           rows_of<T>(b.o), rows_of<T>(b.dout), b.lse.data<float>(), lse2,
                            delta,       padded,          counters,           w.counter_count,     Sizes(p),
                            b.sequences, Shape::kQueries};
  launch(delta_kernel<T>, Grid(blocks_for(p.batches() * p.H * w.padded * 8, 256)), 256, 0, cuda_stream(ctx),
         d);
  // Ranks may share a GPU; then nobody may wait for a block that has not begun.
  const int at_once = ctx.world() > 1 ? 0 : multiprocessors();
  const Lots lots(p, Shape::kKeys, Shape::kQueries, at_once);
  const bool finishes = b.dq.wanted() && !atomic && lots.finish();
  const BackwardArguments<T> a{p,
                               Sizes(p),
                               lots,
                               map_of_heads(layout_of(b.q, p, p.H), Shape::kQueries),
                               map_of_heads(layout_of(b.k, p, p.Hkv), Shape::kKeys),
                               map_of_heads(layout_of(b.v, p, p.Hkv), Shape::kKeys),
                               map_of_heads(layout_of(b.dout, p, p.H), Shape::kQueries),
                               rows_of<T>(b.q),
                               rows_of<T>(b.k),
                               rows_of<T>(b.v),
                               rows_of<T>(b.dout),
                               flash::head_rows<T>(b.dq.tensor, p.D, b.dq.accumulate),
                               flash::head_rows<T>(b.dk.tensor, p.D, b.dk.accumulate),
                               flash::head_rows<T>(b.dv.tensor, p.D, b.dv.accumulate),
                               lse2,
                               delta,
                               padded,
                               reinterpret_cast<float4*>(memory + w.dq_sums),
                               w.late_sums,
                               counters + 1,
                               lots.order == Lots::Order::single ? counters : nullptr,
                               atomic,
                               finishes,
                               b.sequences};
  if (atomic && b.dq.wanted()) {
    KILN_CUDA_CHECK(cudaMemsetAsync(memory + w.dq_sums, 0, static_cast<std::size_t>(w.late_sums) * 16,
                                    static_cast<cudaStream_t>(stream.handle)));
  }
  launch(Start::early, hopper_backward_kernel<Shape>, Grid(lots.blocks()), Shape::kThreads,
         sizeof(BackwardMemory<Shape>), stream, a);
  if (!finishes && b.dq.wanted())
    launch(Start::early, hopper_write_dq_kernel<Shape>, Grid(2 * p.batches() * p.H * w.tiles), 128, 0, stream,
           a);
}

bool empty(const AttentionProblem& p) {
  return p.B == 0 || p.Tq == 0 || p.Tk == 0 || p.query_rows() == 0 || p.key_rows() == 0;
}

}  // namespace

void attention_cuda_hopper_forward(RankContext& ctx, const AttentionForward& f) {
  const AttentionProblem& p = f.p;
  if (empty(p) || !copy_engine_takes(layout_of(f.q, p, p.H)) ||
      !copy_engine_takes(layout_of(f.k, p, p.Hkv)) || !copy_engine_takes(layout_of(f.v, p, p.Hkv)) ||
      !copy_engine_takes(layout_of(f.o, p, p.H)))
    return attention_cuda_flash_forward(ctx, f);
  with_shape(p, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int kD = decltype(width)::value;
    if (p.varied) return run_forward<Varied<ForwardShape<T, ForwardTiles{kD, 2, 128, 2}>>>(ctx, f);
    run_forward_with<T, kD>(ctx, f, chosen_tiles(ctx.attention_choices(), "flash_hopper", p));
  });
}

namespace {

void backward(RankContext& ctx, const AttentionBackward& b, bool atomic) {
  const AttentionProblem& p = b.p;
  const auto takes = [&](const Tensor& t, int64_t heads) {
    return !t.defined() || copy_engine_takes(layout_of(t, p, heads));
  };
  if (empty(p) || !takes(b.q, p.H) || !takes(b.k, p.Hkv) || !takes(b.v, p.Hkv) || !takes(b.dout, p.H) ||
      !takes(b.o, p.H) || !takes(b.dq.tensor, p.H))
    return attention_cuda_flash_backward(ctx, b);
  with_shape(p, [&](auto zero, auto width) {
    using Shape = BackwardShape<decltype(zero), decltype(width)::value>;
    if (p.varied) return run_backward<Varied<Shape>>(ctx, b, atomic);
    run_backward<Shape>(ctx, b, atomic);
  });
}

}  // namespace

void attention_cuda_hopper_backward(RankContext& ctx, const AttentionBackward& b) { backward(ctx, b, false); }
void attention_cuda_hopper_atomic_backward(RankContext& ctx, const AttentionBackward& b) {
  backward(ctx, b, true);
}

}  // namespace kiln
