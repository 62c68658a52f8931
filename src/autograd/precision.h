// The precision policies by name, and what each holds in what dtype. docs/precision.md has the table and what
// goes wrong with each.
#pragma once

#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace kiln {

enum class Precision {
  fp64,       // for gradient checks
  fp32,       // everything in fp32
  bf16,       // split master: bf16 values plus 16 low bits each are an exact fp32
  autocast,   // fp32 weights and gradients; matmuls in bf16, from casts made at each use
  pure_bf16,  // weights, gradients and moments in bf16, nothing behind them: small updates are lost
  fp16,       // autocast to fp16, with a loss scale that follows what overflows
};

struct PrecisionPolicy {
  DType value;         // of the weights as they are kept
  DType grad;          // of the gradient arena
  DType state;         // of the optimizer's moments
  DType compute;       // of matmuls; where it is not `value`, weights and activations are cast at use
  bool split = false;  // 16 extra low bits of each bf16 value make an exact fp32
  bool scales_loss = false;

  bool casts_at_use() const { return compute != value; }
};

// `narrow_grads`: bf16 gradients for bf16 weights. Only where nothing accumulates: with more than one
// micro-step or rank they are kept in fp32, or each sum would lose what bf16 cannot hold.
PrecisionPolicy policy_of(Precision p, bool narrow_grads = false);

// Weights, gradients and two Adam moments, in bytes a parameter; casts at use come on top for as long as they
// live.
double state_bytes_per_parameter(const PrecisionPolicy& p);

std::string_view name_of(Precision p);
std::vector<std::string_view> precision_names();  // those that parse_precision takes

// fp32, bf16, autocast, pure-bf16, fp16. Throws Error(usage) that begins with `option`, with the nearest
// name.
Precision parse_precision(std::string_view option, std::string_view text);

}  // namespace kiln
