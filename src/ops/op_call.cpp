#include "ops/op_call.h"

#include <algorithm>

#include "base/nearest_name.h"
#include "ops/check.h"

namespace kiln {

void announce(RankContext& ctx, const OpEvent& event, bool begin) {
  for (OpObserver* o : ctx.observers()) begin ? o->on_op_begin(ctx, event) : o->on_op_end(ctx, event);
}

void throw_no_variant(std::string_view op, std::string_view wanted, std::span<const std::string> names,
                      std::span<const std::string> reasons) {
  const bool known = wanted.empty() || std::find(names.begin(), names.end(), wanted) != names.end();
  if (!known) {
    std::vector<std::string_view> views(names.begin(), names.end());
    std::string near = nearest_name(wanted, views), list;
    for (const std::string& n : names) {
      if (list.find(n) == std::string::npos) list += (list.empty() ? "" : ", ") + n;
    }
    throw Error(cat("[", op, "] has no variant '", wanted, "'"),
                cat(near.empty() ? "" : cat("did you mean '", near, "'? "), "it has: ", list),
                ErrorKind::usage);
  }
  std::string all;
  for (const std::string& r : reasons) all += (all.empty() ? "" : "; ") + r;
  throw Error(cat("[", op, "] ", wanted.empty() ? "no variant can" : cat("variant '", wanted, "' cannot"),
                  " run here: ", all),
              "choose another device or variant (kiln ops lists them)", ErrorKind::unavailable);
}

void fail(const char* op, const std::string& what, const std::string& hint) {
  throw Error(cat("[", op, "] ", what), hint);
}

void check_tensor(RankContext& ctx, const char* op, const char* name, const Tensor& t, DType dtype) {
  if (!t.defined()) fail(op, cat(name, " is an empty tensor"));
  if (t.device() != ctx.device()) {
    fail(op, cat(name, " is on ", t.device().str(), ", this rank computes on ", ctx.device().str()),
         "upload it to the rank's device first");
  }
  if (t.dtype() != dtype) {
    fail(op, cat(name, " is ", name_of(t.dtype()), " ", t.shape().str(), ", ", name_of(dtype), " is needed"));
  }
}

void check_float_tensor(RankContext& ctx, const char* op, const char* name, const Tensor& t) {
  if (t.defined() && !is_float(t.dtype())) {
    fail(op, cat(name, " is ", name_of(t.dtype()), " ", t.shape().str(), ", a floating dtype is needed"));
  }
  check_tensor(ctx, op, name, t, t.dtype());
}

void check_shape(const char* op, const char* name, const Shape& got, const Shape& wanted) {
  if (got != wanted) fail(op, cat(name, " has shape ", got.str(), ", ", wanted.str(), " is needed"));
}

void check_column_param(const char* op, const char* what, const ParamRef& p, const Tensor& x) {
  if (p.shape() == Shape{x.shape().last()}) return;
  fail(op, cat(what, " ", p.param->name, " has ", p.shape().numel(), " elements, last axis of x ",
               x.shape().str(), " is ", x.shape().last()));
}

void check_param_dtype(const char* op, const ParamRef& p, const Tensor& weight, DType dtype) {
  if (weight.dtype() != dtype) {
    fail(op, cat("weight ", p.param->name, " is ", name_of(weight.dtype()), ", x is ", name_of(dtype)));
  }
}

}  // namespace kiln
