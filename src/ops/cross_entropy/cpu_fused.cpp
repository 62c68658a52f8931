// fused: each row of logits comes from memory once per pass, in fp32 vectors. Forward keeps a running maximum
// and sum (naive reads the row twice); backward turns the row into its gradient.
// Memory bound: rows * vocab * element size bytes forward, twice that backward.
#include <limits>

#include "ops/cpu_fused.h"
#include "ops/cross_entropy/cross_entropy.h"

#define KILN_SIMD_FILE "ops/cross_entropy/cpu_rows_simd.h"
#include "device/cpu/simd_each.h"

namespace kiln {
namespace {

template <class T>
void forward(RankContext& ctx, const CrossEntropyForward& f) {
  const auto row_lse = KILN_SIMD_PICK(ctx.traits().isa, row_lse<T>);
  const auto logits = rows_of<T>(f.logits);
  const int32_t* targets = f.targets.data<int32_t>();
  float* lse = f.lse.data<float>();
  float* losses = reinterpret_cast<float*>(f.workspace.raw());
  ctx.pool().parallel_for(f.p.rows, row_grain(f.p.vocab), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int32_t t = targets[r];
      lse[r] = losses[r] = 0;
      if (t == kIgnoreTarget) continue;
      lse[r] = row_lse(logits[r], f.p.vocab);
      losses[r] =
          t >= 0 && t < f.p.vocab ? lse[r] - widen(logits[r][t]) : std::numeric_limits<float>::quiet_NaN();
    }
  });
  const MeanLoss mean = mean_loss(losses, targets, f.p.rows);
  f.count.data<float>()[0] = static_cast<float>(mean.count);
  f.loss.data<float>()[0] = static_cast<float>(mean.loss);
}

template <class T>
void backward(RankContext& ctx, const CrossEntropyBackward& b) {
  const auto row_gradient = KILN_SIMD_PICK(ctx.traits().isa, row_gradient<T, T>);
  const auto logits = rows_of<T>(b.logits), dlogits = rows_of<T>(b.dlogits.tensor);
  const int32_t* targets = b.targets.data<int32_t>();
  const float* lse = b.lse.data<float>();
  const float count = b.count.data<float>()[0];
  const float weight = count == 0 ? 0 : b.dloss.data<float>()[0] / count;
  ctx.pool().parallel_for(b.p.rows, row_grain(b.p.vocab), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      if (targets[r] != kIgnoreTarget) {
        row_gradient(logits[r], b.p.vocab, lse[r], weight, targets[r], b.dlogits.accumulate, dlogits[r]);
      } else if (!b.dlogits.accumulate) {
        std::fill(dlogits[r], dlogits[r] + b.p.vocab, T(0.0f));
      }
    }
  });
}

}  // namespace

void cross_entropy_cpu_fused_forward(RankContext& ctx, const CrossEntropyForward& f) {
  with_narrow_float(f.p.dtype, [&](auto zero) { forward<decltype(zero)>(ctx, f); });
}

void cross_entropy_cpu_fused_backward(RankContext& ctx, const CrossEntropyBackward& b) {
  with_narrow_float(b.p.dtype, [&](auto zero) { backward<decltype(zero)>(ctx, b); });
}

}  // namespace kiln
