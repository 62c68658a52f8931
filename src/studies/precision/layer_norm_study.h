// Which part of LayerNorm fails in 16 bits: mean, variance, reciprocal root and affine, each alone in the
// narrow dtype and the rest in fp64, then all of them, over inputs from very small to very large.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace kiln {

struct LayerNormRequest {
  int64_t width = 768;
  int64_t rows = 8;
  double eps = 1e-5;
  uint64_t seed = 0;
};

// What is computed in the narrow dtype: one part with every rounding of its own, the sums included; all
// parts; or all parts with the two sums in fp32, as kernels do it.
enum class NarrowPart { mean, variance, rsqrt, affine, all, all_but_sums };
inline constexpr int kNarrowParts = 6;

struct LayerNormCell {
  double error = 0;  // of the output, by norm, relative to fp64; infinite where an output is not finite
  int64_t roundings = 0, overflows = 0, vanished = 0, subnormal = 0;  // of what was rounded

  bool overflowed() const { return overflows > 0; }
  // A single small number may vanish unharmed: one in a hundred is where it begins to count.
  bool underflowed() const { return 100 * vanished >= roundings && vanished > 0; }
  bool lost_digits() const { return 100 * subnormal >= roundings && subnormal > 0; }
};

struct LayerNormRow {
  DType dtype;
  double scale;      // inputs are scale x (1 + z), z standard normal, cut at 3
  double floor = 0;  // the error of rounding the right output to the dtype
  std::array<LayerNormCell, kNarrowParts> cells{};
  const LayerNormCell& of(NarrowPart p) const { return cells[static_cast<std::size_t>(p)]; }
};

struct LayerNormReport {
  LayerNormRequest request;
  std::vector<LayerNormRow> rows;
};

LayerNormReport layer_norm_study(const LayerNormRequest& request);

// The scale from which on the part must overflow; infinite where it cannot.
double predicted_overflow(DType dtype, NarrowPart part, int64_t width);

std::string_view name_of(NarrowPart p);

}  // namespace kiln
