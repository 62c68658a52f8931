// fused: one call for a whole range of the flat buffers, fp32 vectors; each segment of the range has its own
// decay. Clip, moments, correction, decay and the split of the weight happen while an element is in
// registers.
// Memory bound: reads w, g, m, v and writes w, m, v: 28 bytes an element with fp32 or split weights and fp32
// gradients.
#include <algorithm>

#include "ops/adamw/adamw.h"
#include "ops/cpu_fused.h"

namespace kiln {
namespace {

template <class T>
struct PlainWeights {
  T* value;
};

struct SplitWeights {  // high + low = exact fp32
  bf16* high;
  int16_t* low;
};

template <class Weights, class G, class M>
struct AdamWRange {
  AdamWStep<float> step;
  Weights weights;
  const G* grad;
  M *m, *v;
};

}  // namespace
}  // namespace kiln

#define KILN_SIMD_FILE "ops/adamw/cpu_fused_simd.h"
#include "device/cpu/simd_each.h"

namespace kiln {
namespace {

template <class G, class M, class Weights>
void update(RankContext& ctx, const AdamWForward& f, const StepScalars& s, Weights weights) {
  const AdamWRange<Weights, G, M> range{AdamWStep<float>(f.p, s), weights, f.grad.data<G>(), f.m.data<M>(),
                                        f.v.data<M>()};
  const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, update_range<Weights, G, M>);
  const DecaySegment whole{f.p.count, f.p.decay};
  const auto* first = f.p.segments == 0 ? &whole : reinterpret_cast<const DecaySegment*>(f.segments.raw());
  const auto* last = first + std::max<int64_t>(1, f.p.segments);
  ctx.pool().parallel_for(f.p.count, 16384, [&](int64_t begin, int64_t end) {
    const auto* segment =
        std::upper_bound(first, last, begin, [](int64_t at, const DecaySegment& d) { return at < d.end; });
    for (; begin < end; ++segment) {
      const int64_t stop = std::min(end, segment->end);
      kernel(range, static_cast<float>(segment->decay), begin, stop);
      begin = stop;
    }
  });
}

}  // namespace

void adamw_cpu_fused(RankContext& ctx, const AdamWForward& f) {
  const auto& s = *reinterpret_cast<const StepScalars*>(f.scalars.raw());
  if (!s.updates()) return;
  with_narrow_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_grad_type<T>({f.grad, false}, [&](auto g) {
      using G = decltype(g);
      if (f.p.split) {
        update<G, float>(ctx, f, s, SplitWeights{f.value.data<bf16>(), f.low.data<int16_t>()});
      } else {
        with_grad_type<T>({f.m, false}, [&](auto m) {
          update<G, decltype(m)>(ctx, f, s, PlainWeights<T>{f.value.data<T>()});
        });
      }
    });
  });
}

}  // namespace kiln
