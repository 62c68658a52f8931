// fused: for a chunk of rows at a time, logits = x W^T in fp32, each row's loss, the row turned into its
// gradient (in place, or next to it in 16 bits), dx = dlogits W, dW += dlogits^T x. Then the next chunk
// takes the same memory. Compute bound: the three matmuls; composed also writes and reads the whole logits
// and their gradient.
#include <algorithm>
#include <limits>

#include "ops/cpu_fused.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/gemm/cpu_gemm.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"

#define KILN_SIMD_FILE "ops/cross_entropy/cpu_rows_simd.h"
#include "device/cpu/simd_each.h"

namespace kiln {
namespace {

using Problem = LinearCrossEntropyProblem;

// Chunks of equal size whose logits take about 8 MiB. Each chunk reads W twice and adds to dW once, so
// there are never fewer than 64 rows to pay for it.
int64_t chunk_rows(const Problem& p) {
  const int64_t own = std::max<int64_t>(64, (int64_t{8} << 20) / (4 * std::max<int64_t>(1, p.vocab)));
  const int64_t most = p.chunk_rows > 0 ? p.chunk_rows : own;
  const int64_t chunks = std::max<int64_t>(1, (p.rows + most - 1) / most);
  return (p.rows + chunks - 1) / chunks;
}

struct Products {
  CpuGemm logits, dx, dweight;  // of `rows` rows; pointers are filled in later
};

Products products(const Problem& p, int64_t rows) {
  return {
      {rows, p.vocab, p.in, nullptr, p.in, 1, nullptr, 1, p.in, nullptr, p.vocab, p.dtype, DType::f32},
      {rows, p.in, p.vocab, nullptr, p.vocab, 1, nullptr, p.in, 1, nullptr, p.in, p.dtype, p.dtype},
      {p.vocab, p.in, rows, nullptr, 1, p.vocab, nullptr, p.in, 1, nullptr, p.in, p.dtype, DType::f32},
  };
}

struct Layout {
  std::size_t gradients, losses, gemm, total;  // where each begins; the logits come first

  explicit Layout(const Problem& p) {
    const int64_t rows = chunk_rows(p);
    const auto chunk = static_cast<std::size_t>(rows * p.vocab);
    const bool in_place = p.dtype == DType::f32;
    gradients = in_place ? 0 : round_up(chunk * sizeof(float), 64);
    losses = gradients + round_up(chunk * (in_place ? sizeof(float) : size_of(p.dtype)), 64);
    gemm = losses + round_up(static_cast<std::size_t>(p.rows) * sizeof(float), 64);
    // The widest any level and chunk needs, so that a prediction made elsewhere holds here.
    std::size_t most = 0;
    for (int64_t r : {rows, rows == 0 ? 0 : p.rows % rows}) {
      const Products g = products(p, r);
      for (int i = 0; i < kCpuIsaCount; ++i) {
        const auto isa = static_cast<CpuIsa>(i);
        most = std::max(most, cpu_gemm_workspace(g.logits, isa));
        if (p.dx) most = std::max(most, cpu_gemm_workspace(g.dx, isa));
        if (p.dweight) most = std::max(most, cpu_gemm_workspace(g.dweight, isa));
      }
    }
    total = gemm + most;
  }
};

template <class T>
void forward(RankContext& ctx, const LinearCrossEntropyForward& f) {
  const Problem& p = f.p;
  const auto row_lse = KILN_SIMD_PICK(ctx.traits().isa, row_lse<float>);
  const auto row_gradient = KILN_SIMD_PICK(ctx.traits().isa, row_gradient<float, T>);
  const Layout layout(p);
  float* logits = reinterpret_cast<float*>(f.workspace.raw());
  T* gradients = reinterpret_cast<T*>(f.workspace.raw() + layout.gradients);
  float* losses = reinterpret_cast<float*>(f.workspace.raw() + layout.losses);
  std::byte* scratch = f.workspace.raw() + layout.gemm;
  const int32_t* targets = f.targets.data<int32_t>();
  const auto x = rows_of<T>(f.x);
  const T* weight = f.weight.data<T>();
  const int64_t each = chunk_rows(p), weight_row = f.weight.row_stride();

  // The row's loss and, where gradients are wanted, softmax - one-hot.
  auto one_row = [&](const float* row, int32_t target, float& loss, T* gradient) {
    const bool wanted = p.dx || p.dweight;
    if (target == kIgnoreTarget) {
      loss = 0;
      if (wanted) std::fill(gradient, gradient + p.vocab, T(0.0f));
      return;
    }
    const float lse = row_lse(row, p.vocab);
    loss = target >= 0 && target < p.vocab ? lse - row[target] : std::numeric_limits<float>::quiet_NaN();
    if (wanted) row_gradient(row, p.vocab, lse, 1, target, false, gradient);
  };

  for (int64_t first = 0; first < p.rows; first += each) {
    const int64_t rows = std::min(each, p.rows - first);
    Products g = products(p, rows);
    g.logits.a = g.dweight.b = x[first];
    g.logits.a_row = g.dweight.b_row = x.stride;
    g.logits.b = g.dx.b = weight;
    g.logits.b_col = g.dx.b_row = weight_row;
    g.logits.c = logits;
    g.dx.a = g.dweight.a = gradients;
    cpu_gemm(ctx, g.logits, scratch);
    ctx.pool().parallel_for(rows, row_grain(p.vocab), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        one_row(logits + r * p.vocab, targets[first + r], losses[first + r], gradients + r * p.vocab);
    });
    if (p.dx) {
      g.dx.c = f.dx.data<T>() + first * p.in;
      cpu_gemm(ctx, g.dx, scratch);
    }
    if (p.dweight) {
      g.dweight.c = f.dweight.raw();
      g.dweight.accumulate = first > 0;
      cpu_gemm(ctx, g.dweight, scratch);
    }
  }
  if (p.rows == 0 && p.dweight) std::fill_n(f.dweight.data<float>(), f.dweight.numel(), 0.0f);
  const MeanLoss mean = mean_loss(losses, targets, p.rows);
  if (f.count.defined()) f.count.data<float>()[0] = static_cast<float>(mean.count);
  f.loss.data<float>()[0] = static_cast<float>(mean.loss);
}

// slot = (or +=) factor * saved
template <class S, class G>
void scaled(RankContext& ctx, const S* saved, float factor, const GradSlot& slot) {
  G* to = slot.tensor.data<G>();
  ctx.pool().parallel_for(slot.tensor.numel(), 16384, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) put(to[i], factor * static_cast<float>(saved[i]), slot.accumulate);
  });
}

template <class T>
void backward(RankContext& ctx, const LinearCrossEntropyBackward& b) {
  const float count = b.count.data<float>()[0];
  const float factor = count == 0 ? 0 : b.dloss.data<float>()[0] / count;
  if (b.dx.wanted()) scaled<T, T>(ctx, b.saved_dx.data<T>(), factor, b.dx);
  if (b.dweight.wanted()) {
    with_grad_type<T>(b.dweight, [&](auto zero) {
      scaled<float, decltype(zero)>(ctx, b.saved_dweight.data<float>(), factor, b.dweight);
    });
  }
}

}  // namespace

std::size_t linear_cross_entropy_cpu_fused_workspace(const Problem& p, Pass pass) {
  return pass == Pass::forward ? Layout(p).total : 0;
}

void linear_cross_entropy_cpu_fused_forward(RankContext& ctx, const LinearCrossEntropyForward& f) {
  with_narrow_float(f.p.dtype, [&](auto zero) { forward<decltype(zero)>(ctx, f); });
}

void linear_cross_entropy_cpu_fused_backward(RankContext& ctx, const LinearCrossEntropyBackward& b) {
  with_narrow_float(b.p.dtype, [&](auto zero) { backward<decltype(zero)>(ctx, b); });
}

}  // namespace kiln
