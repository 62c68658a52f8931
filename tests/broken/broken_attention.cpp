// As broken_variants.cpp, for attention: the last query of a long sequence, and a backward pass.
#include <cstdlib>
#include <string_view>

#define attention_cpu_flash_forward right_flash_forward
#define attention_cpu_flash_backward right_flash_backward
#include "ops/attention/cpu/flash.cpp"
#undef attention_cpu_flash_forward
#undef attention_cpu_flash_backward

namespace kiln {
namespace {

bool broken(std::string_view how) {
  const char* asked = std::getenv("KILN_BROKEN");
  return asked != nullptr && asked == how;
}

// The last row of a tensor times `factor`.
void spoil_last_row(const Tensor& t, float factor) {
  with_float(t.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Tensor rows = t.reshape_rows();
    T* const last = rows.data<T>() + (rows.dim(0) - 1) * rows.row_stride();
    for (int64_t c = 0; c < rows.dim(1); ++c) last[c] = static_cast<T>(factor * static_cast<float>(last[c]));
  });
}

}  // namespace

void attention_cpu_flash_forward(RankContext& ctx, const AttentionForward& f) {
  right_flash_forward(ctx, f);
  constexpr int64_t kLong = 400;  // tokens: more than a check of a reduced shape has
  if (broken("last query of a long sequence") && f.p.Tq >= kLong) spoil_last_row(f.o, 1.5f);
}

void attention_cpu_flash_backward(RankContext& ctx, const AttentionBackward& b) {
  right_flash_backward(ctx, b);
  if (broken("attention backward")) spoil_last_row(b.dq.tensor, 1.5f);
}

}  // namespace kiln
