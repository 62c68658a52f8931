// What the vectorised CPU kernels share: the dtypes they take.
#pragma once

#include "ops/cpu_rows.h"
#include "ops/variant.h"

namespace kiln {

// Vector kernels compute in fp32. fp64 is for definitions and gradient checks, which naive serves.
template <class Problem>
std::string needs_fp32_or_narrower(const Problem& p, const DeviceTraits&) {
  return p.dtype == DType::f64 ? "computes in fp32, fp64 runs on naive" : std::string();
}

template <class F>
void with_narrow_float(DType t, F&& f) {
  with_float(t, [&](auto zero) {
    if constexpr (!std::is_same_v<decltype(zero), double>) {
      f(zero);
    } else {
      throw Error("a vector kernel was given fp64");
    }
  });
}

}  // namespace kiln
