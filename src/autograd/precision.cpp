#include "autograd/precision.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "base/options.h"

namespace kiln {

namespace {

struct Row {
  Precision precision;
  std::string_view name;
  PrecisionPolicy policy;
  bool narrows_grads = false;  // in bf16 where nothing accumulates
  bool offered = true;         // by name
};

using D = DType;
const Row kRows[] = {
    {Precision::fp64, "fp64", {D::f64, D::f64, D::f64, D::f64}, false, false},
    {Precision::fp32, "fp32", {D::f32, D::f32, D::f32, D::f32}},
    {Precision::bf16, "bf16", {D::bf16, D::f32, D::f32, D::bf16, true}, true},
    {Precision::autocast, "autocast", {D::f32, D::f32, D::f32, D::bf16}},
    {Precision::pure_bf16, "pure-bf16", {D::bf16, D::bf16, D::bf16, D::bf16}},
    {Precision::fp16, "fp16", {D::f32, D::f32, D::f32, D::f16, false, true}},
};

const Row& row_of(Precision p) {
  for (const Row& r : kRows) {
    if (r.precision == p) return r;
  }
  throw Error("a precision without a policy");
}

}  // namespace

PrecisionPolicy policy_of(Precision p, bool narrow_grads) {
  const Row& row = row_of(p);
  PrecisionPolicy policy = row.policy;
  if (narrow_grads && row.narrows_grads) policy.grad = policy.value;
  return policy;
}

double state_bytes_per_parameter(const PrecisionPolicy& p) {
  return static_cast<double>(size_of(p.value) + (p.split ? 2 : 0) + size_of(p.grad) + 2 * size_of(p.state));
}

std::string_view name_of(Precision p) { return row_of(p).name; }

std::vector<std::string_view> precision_names() {
  std::vector<std::string_view> names;
  for (const Row& r : kRows) {
    if (r.offered) names.push_back(r.name);
  }
  return names;
}

Precision parse_precision(std::string_view option, std::string_view text) {
  const std::vector<std::string_view> names = precision_names();
  const std::string_view name = names[which_name(std::string(option), text, names)];
  return std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.name == name; })
      ->precision;
}

}  // namespace kiln
