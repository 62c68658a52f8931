// As broken_variants.cpp, for the matmul: the last row of y.
#include <cstdlib>
#include <string_view>

#define linear_cpu_packed_forward right_packed_forward
#define linear_cpu_packed_backward right_packed_backward
#define linear_cpu_packed_workspace right_packed_workspace
#include "ops/linear/cpu_packed.cpp"
#undef linear_cpu_packed_forward
#undef linear_cpu_packed_backward
#undef linear_cpu_packed_workspace

namespace kiln {

void linear_cpu_packed_forward(RankContext& ctx, const LinearForward& f) {
  right_packed_forward(ctx, f);
  const char* asked = std::getenv("KILN_BROKEN");
  if (asked == nullptr || asked != std::string_view("matmul")) return;
  with_float(f.y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Tensor rows = f.y.reshape_rows();
    T* const last = rows.data<T>() + (rows.dim(0) - 1) * rows.row_stride();
    for (int64_t c = 0; c < rows.dim(1); ++c) last[c] = static_cast<T>(1.5f * static_cast<float>(last[c]));
  });
}

void linear_cpu_packed_backward(RankContext& ctx, const LinearBackward& b) { right_packed_backward(ctx, b); }

std::size_t linear_cpu_packed_workspace(const LinearProblem& p, Pass pass) {
  return right_packed_workspace(p, pass);
}

}  // namespace kiln
