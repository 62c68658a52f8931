#include <cmath>
#include <limits>

#include "ops/cpu_rows.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace kiln {
namespace {

template <class T>
void forward(RankContext& ctx, const CrossEntropyForward& f) {
  using A = Accum<T>;
  const auto logits = rows_of<T>(f.logits);
  const int32_t* targets = f.targets.data<int32_t>();
  A* lse = f.lse.data<A>();
  A* losses = reinterpret_cast<A*>(f.workspace.raw());
  ctx.pool().parallel_for(f.p.rows, row_grain(f.p.vocab), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      A top = -INFINITY, sum = 0;
      for (int64_t v = 0; v < f.p.vocab; ++v) top = widen(logits[r][v]) > top ? widen(logits[r][v]) : top;
      for (int64_t v = 0; v < f.p.vocab; ++v) sum += std::exp(widen(logits[r][v]) - top);
      lse[r] = top + std::log(sum);
      const int32_t t = targets[r];
      const bool known = t >= 0 && t < f.p.vocab;
      losses[r] = t == kIgnoreTarget ? A(0)
                  : known            ? lse[r] - widen(logits[r][t])
                                     : std::numeric_limits<A>::quiet_NaN();
    }
  });
  const MeanLoss mean = mean_loss(losses, targets, f.p.rows);
  f.count.data<A>()[0] = static_cast<A>(mean.count);
  f.loss.data<A>()[0] = static_cast<A>(mean.loss);
}

template <class T>
void backward(RankContext& ctx, const CrossEntropyBackward& b) {
  using A = Accum<T>;
  const auto logits = rows_of<T>(b.logits), dlogits = rows_of<T>(b.dlogits.tensor);
  const int32_t* targets = b.targets.data<int32_t>();
  const A* lse = b.lse.data<A>();
  const A count = b.count.data<A>()[0];
  const A scale = count == 0 ? A(0) : b.dloss.data<A>()[0] / count;
  ctx.pool().parallel_for(b.p.rows, row_grain(b.p.vocab), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const A weight = targets[r] == kIgnoreTarget ? A(0) : scale;
      for (int64_t v = 0; v < b.p.vocab; ++v) {
        const A prob = std::exp(widen(logits[r][v]) - lse[r]);
        put(dlogits[r][v], weight * (prob - (v == targets[r] ? A(1) : A(0))), b.dlogits.accumulate);
      }
    }
  });
}

}  // namespace

void cross_entropy_cpu_naive_forward(RankContext& ctx, const CrossEntropyForward& f) {
  with_float(f.p.dtype, [&](auto zero) { forward<decltype(zero)>(ctx, f); });
}

void cross_entropy_cpu_naive_backward(RankContext& ctx, const CrossEntropyBackward& b) {
  with_float(b.p.dtype, [&](auto zero) { backward<decltype(zero)>(ctx, b); });
}

}  // namespace kiln
