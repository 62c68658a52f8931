#include "ops/gemm/cpu_gemm.h"

#include <vector>

#include "ops/cpu_rows.h"

namespace kiln {
namespace {

template <class T, class O>
void plain(RankContext& ctx, const CpuGemm& g) {
  const T* a = static_cast<const T*>(g.a);
  const T* b = static_cast<const T*>(g.b);
  O* c = static_cast<O*>(g.c);
  ctx.pool().parallel_for(g.M, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> sum(static_cast<std::size_t>(g.N));
    for (int64_t m = begin; m < end; ++m) {
      std::fill(sum.begin(), sum.end(), 0.0f);
      for (int64_t k = 0; k < g.K; ++k) {
        const float x = static_cast<float>(a[m * g.a_row + k * g.a_col]);
        for (int64_t n = 0; n < g.N; ++n) sum[n] += x * static_cast<float>(b[k * g.b_row + n * g.b_col]);
      }
      for (int64_t n = 0; n < g.N; ++n) put(c[m * g.c_row + n], g.alpha * sum[n], g.accumulate);
    }
  });
}

}  // namespace

std::size_t cpu_gemm_workspace(const CpuGemm&, CpuIsa) { return 0; }

void cpu_gemm(RankContext& ctx, const CpuGemm& g, std::byte*) {
  auto typed = [&](auto in) {
    using T = decltype(in);
    g.out == dtype_of<T>() ? plain<T, T>(ctx, g) : plain<T, float>(ctx, g);
  };
  if (g.in == DType::f32) typed(float{});
  if (g.in == DType::bf16) typed(bf16{});
  if (g.in == DType::f16) typed(fp16{});
}

}  // namespace kiln
