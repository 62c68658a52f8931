// Argument checks shared by all ops. A message starts with the op and shows both sides of the mismatch.
#pragma once

#include "autograd/param.h"
#include "autograd/rank_context.h"

namespace kiln {

[[noreturn]] void fail(const char* op, const std::string& what, const std::string& hint = {});

// The tensor exists, lives on the rank's device, and has the dtype.
void check_tensor(RankContext& ctx, const char* op, const char* name, const Tensor& t, DType dtype);
void check_float_tensor(RankContext& ctx, const char* op, const char* name, const Tensor& t);
void check_shape(const char* op, const char* name, const Shape& got, const Shape& wanted);
// A weight has one element for each column of x; `what` it is called, "weight" or "bias".
void check_column_param(const char* op, const char* what, const ParamRef& p, const Tensor& x);
// A weight has the dtype of the activations it multiplies.
void check_param_dtype(const char* op, const ParamRef& p, const Tensor& weight, DType dtype);

}  // namespace kiln
