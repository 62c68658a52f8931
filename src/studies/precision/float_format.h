// What a floating dtype can hold: how many digits, how large, how small. The studies of precision predict
// from it what their loops then find.
#pragma once

#include <algorithm>
#include <cmath>

#include "base/dtype.h"

namespace kiln {

struct FloatFormat {
  int digits;        // binary, the leading one included
  int min_exponent;  // of the smallest normal number, 2^min_exponent
  double largest;

  double unit_roundoff() const { return std::ldexp(1.0, -digits); }  // the largest relative error of rounding
  double smallest_normal() const { return std::ldexp(1.0, min_exponent); }
  double smallest() const { return std::ldexp(1.0, min_exponent - digits + 1); }

  // The distance from |x| to the next number above it.
  double spacing(double x) const {
    const int exponent = x == 0 ? min_exponent : std::max(std::ilogb(x), min_exponent);
    return std::ldexp(1.0, exponent - digits + 1);
  }
};

inline FloatFormat format_of(DType t) {
  switch (t) {
    case DType::f64:
      return {53, -1022, 0x1.fffffffffffffp1023};
    case DType::f32:
      return {24, -126, 0x1.fffffep127};
    case DType::bf16:
      return {8, -126, 0x1.fep127};
    case DType::f16:
      return {11, -14, 65504};
    default:
      throw Error(cat("dtype ", name_of(t), " where a floating one is needed"));
  }
}

// `x` as T holds it. By way of float: exact for what came from one operation on values of T, since float has
// more than twice the digits of either 16-bit type.
template <class T>
double held_as(double x) {
  if constexpr (std::is_same_v<T, double>) return x;
  return static_cast<double>(static_cast<float>(T(static_cast<float>(x))));
}

}  // namespace kiln
