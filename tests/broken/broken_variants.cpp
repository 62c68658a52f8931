// The fused CPU variants of two ops with mistakes in them, for one test program and no other: it must refuse
// to time what they compute. The linker takes these functions in place of the library's. Which mistake is
// made is said by KILN_BROKEN: the real variant runs first, then its result is spoilt.
#include <cstdlib>
#include <string_view>

// Defined under other names first, so that there is something to spoil.
#define swiglu_cpu_fused_forward right_swiglu_forward
#define swiglu_cpu_fused_backward right_swiglu_backward
#include "ops/swiglu/cpu_fused.cpp"
#undef swiglu_cpu_fused_forward
#undef swiglu_cpu_fused_backward

namespace kiln {
namespace {

bool broken(std::string_view how) {
  const char* asked = std::getenv("KILN_BROKEN");
  return asked != nullptr && asked == how;
}

template <class F>
void for_row(const Tensor& t, int64_t row, F f) {
  with_float(t.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* const values = rows_of<T>(t)[row];
    for (int64_t c = 0; c < t.shape().last(); ++c) values[c] = f(values[c], c);
  });
}

}  // namespace

void swiglu_cpu_fused_forward(RankContext& ctx, const SwigluForward& f) {
  right_swiglu_forward(ctx, f);
  const int64_t rows = f.p.rows;
  if (broken("copied gate")) {
    with_float(f.p.dtype, [&](auto zero) {
      using T = decltype(zero);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < f.p.cols; ++c) rows_of<T>(f.y)[r][c] = rows_of<T>(f.gate)[r][c];
      }
    });
  }
  constexpr int64_t kLarge = 256;  // rows: more than a check of a reduced shape has
  if (broken("last row of a large size") && rows >= kLarge)
    for_row(f.y, rows - 1, [](auto v, int64_t) { return static_cast<decltype(v)>(-static_cast<float>(v)); });
}

void swiglu_cpu_fused_backward(RankContext& ctx, const SwigluBackward& b) {
  right_swiglu_backward(ctx, b);
  if (broken("backward") && b.dgate.tensor.defined())
    for (int64_t r = 0; r < b.p.rows; ++r)
      for_row(b.dgate.tensor, r,
              [](auto v, int64_t) { return static_cast<decltype(v)>(0.9f * static_cast<float>(v)); });
}

}  // namespace kiln
