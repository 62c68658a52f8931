#include "autograd/precision.h"

#include <string>
#include <vector>

#include "base/nearest_name.h"

namespace kiln {

PrecisionPolicy policy_of(Precision p, bool narrow_grads) {
  using D = DType;
  switch (p) {
    case Precision::fp64:
      return {D::f64, D::f64, D::f64, D::f64};
    case Precision::fp32:
      return {D::f32, D::f32, D::f32, D::f32};
    case Precision::bf16:
      return {D::bf16, narrow_grads ? D::bf16 : D::f32, D::f32, D::bf16, true};
    case Precision::autocast:
      return {D::f32, D::f32, D::f32, D::bf16};
    case Precision::pure_bf16:
      return {D::bf16, D::bf16, D::bf16, D::bf16};
    case Precision::fp16:
      return {D::f32, D::f32, D::f32, D::f16, false, true};
  }
  throw Error("a precision without a policy");
}

double state_bytes_per_parameter(const PrecisionPolicy& p) {
  return static_cast<double>(size_of(p.value) + (p.split ? 2 : 0) + size_of(p.grad) + 2 * size_of(p.state));
}

std::string_view name_of(Precision p) {
  constexpr std::string_view kNames[] = {"fp64", "fp32", "bf16", "autocast", "pure-bf16", "fp16"};
  return kNames[static_cast<int>(p)];
}

Precision parse_precision(std::string_view option, std::string_view text) {
  std::vector<std::string_view> names;
  std::string all;
  for (Precision p :
       {Precision::fp32, Precision::bf16, Precision::autocast, Precision::pure_bf16, Precision::fp16}) {
    if (text == name_of(p)) return p;
    names.push_back(name_of(p));
    all += cat(all.empty() ? "" : ", ", name_of(p));
  }
  const std::string near = nearest_name(text, names);
  throw Error(cat(option, " is '", text, "'; expected one of: ", all),
              near.empty() ? "" : cat("did you mean '", near, "'?"), ErrorKind::usage);
}

}  // namespace kiln
