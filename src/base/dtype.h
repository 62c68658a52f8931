// The number formats a tensor can hold, and the one switch from a run-time dtype to a C++ type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "base/error.h"
#include "base/half.h"

namespace kiln {

enum class DType : uint8_t { f64, f32, bf16, f16, i64, i32, i16, u8 };

constexpr std::size_t size_of(DType t) {
  switch (t) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
    case DType::i16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType t) {
  constexpr std::string_view kNames[] = {"fp64", "fp32", "bf16", "fp16", "int64", "int32", "int16", "uint8"};
  return kNames[static_cast<int>(t)];
}

constexpr bool is_float(DType t) { return t <= DType::f16; }

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, double>) return DType::f64;
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  if constexpr (std::is_same_v<T, kiln::bf16>) return DType::bf16;
  if constexpr (std::is_same_v<T, kiln::fp16>) return DType::f16;
  if constexpr (std::is_same_v<T, int64_t>) return DType::i64;
  if constexpr (std::is_same_v<T, int32_t>) return DType::i32;
  if constexpr (std::is_same_v<T, int16_t>) return DType::i16;
  if constexpr (std::is_same_v<T, uint8_t>) return DType::u8;
}

// The type sums and statistics are kept in: double for fp64, float for everything narrower.
template <class T>
using Accum = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The dtype of saved statistics (rstd, logsumexp) of data of dtype `t`.
constexpr DType stat_dtype(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

// Calls f with a value of the C++ type behind a floating dtype: with_float(t, [&](auto zero) { using T =
// decltype(zero); ... }).
template <class F>
decltype(auto) with_float(DType t, F&& f) {
  switch (t) {
    case DType::f64:
      return f(double{});
    case DType::f32:
      return f(float{});
    case DType::bf16:
      return f(bf16{});
    case DType::f16:
      return f(fp16{});
    default:
      throw Error(cat("dtype ", name_of(t), " where a floating one is needed"));
  }
}

}  // namespace kiln
