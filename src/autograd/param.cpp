#include "autograd/param.h"

#include "autograd/cast_values.h"

namespace kiln {

ParamUse::ParamUse(const ParamRef& ref, std::optional<DType> beside, bool counts) : param_(ref.param) {
  if (param_ == nullptr) throw Error("an op was given an empty parameter handle");
  if (counts && param_->trainable) ++param_->expected;
  if (param_->hooks) {
    const bool cast = beside && param_->cast_to == beside;
    param_->hooks->gather(*param_, cast ? *beside : param_->kept);
  }
  if (!param_->value.defined()) {
    throw Error(cat("parameter ", param_->name, " has no storage"),
                "materialize the ParamStore before using the model");
  }
  tensor_ = param_->value.narrow(0, ref.row_begin, ref.rows);
}

ParamUse::ParamUse(const ParamRef& ref, bool counts) : ParamUse(ref, std::nullopt, counts) {}

ParamUse::ParamUse(RankContext& ctx, const ParamRef& ref, DType beside, bool counts)
    : ParamUse(ref, std::optional(beside), counts) {
  if (tensor_.dtype() != beside && param_->cast_to == beside)
    tensor_ = cast_values(ctx, tensor_, beside, Tag::param);
}

ParamUse::~ParamUse() {
  tensor_ = {};
  if (param_->hooks) param_->hooks->release(*param_);
}

GradSlot param_grad(const ParamRef& ref) {
  Param& p = *ref.param;
  if (!p.trainable) return {};
  if (p.hooks) p.hooks->grad_begin(p);
  const RowRange mine{ref.row_begin, ref.row_begin + ref.rows};
  bool inside = false;
  for (const RowRange& r : p.touched) {
    if (mine.begin >= r.begin && mine.end <= r.end) inside = true;
    if (!inside && mine.begin < r.end && r.begin < mine.end) {
      throw Error(cat("gradient of ", p.name, ": rows [", mine.begin, ", ", mine.end, ") overlap rows [",
                      r.begin, ", ", r.end, ") only partly"),
                  "use a packed weight either whole or through its views within one step");
    }
  }
  if (!p.grad.defined())
    throw Error(cat("parameter ", p.name, " has no memory for a gradient"),
                "the model was set up for inference; run it with GradMode::off");
  if (!inside) p.touched.push_back(mine);
  return {p.grad.narrow(0, ref.row_begin, ref.rows), inside};
}

void param_grad_done(Param& p) {
  if (!p.trainable) return;
  if (++p.arrived < p.expected) return;
  p.arrived = p.expected = 0;
  if (p.hooks) p.hooks->grad_ready(p);
}

}  // namespace kiln
