#include "dist/strategy/mesh_strategy.h"

#include <algorithm>

namespace kiln {
namespace {

// Elements of a flat buffer.
struct Range {
  int64_t begin, end;
};

Range range_in(const Tensor& flat, const Tensor& part) {
  const int64_t begin = (part.raw() - flat.raw()) / static_cast<int64_t>(size_of(flat.dtype()));
  return {begin, begin + part.numel()};
}

// What is left of `parts` without `holes`, which are in order.
std::vector<Tensor> without(const Tensor& flat, const std::vector<Tensor>& parts,
                            const std::vector<Range>& holes) {
  std::vector<Tensor> left;
  for (const Tensor& part : parts) {
    Range r = range_in(flat, part);
    for (const Range& hole : holes) {
      if (hole.end <= r.begin || hole.begin >= r.end) continue;
      if (hole.begin > r.begin) left.push_back(flat.narrow(0, r.begin, hole.begin - r.begin));
      r.begin = std::min(hole.end, r.end);
    }
    if (r.begin < r.end) left.push_back(flat.narrow(0, r.begin, r.end - r.begin));
  }
  return left;
}

}  // namespace

std::vector<ParamSpan> MeshStrategy::spans(const ParamStore& params, SpanUnit unit) const {
  if (unit == SpanUnit::matrices && tensor_.world() > 1)
    throw Error(cat("the optimizer updates whole matrices, and ", tensor_.world(),
                    " tensor-parallel ranks have a part of each"),
                "leave --tp out, or take an optimizer that updates element by element", ErrorKind::usage);
  return data_->spans(params, unit);
}

std::vector<Tensor> MeshStrategy::own_grads(const ParamStore& params) const {
  std::vector<Tensor> own = data_->own_grads(params);
  if (tensor_.rank() == 0) return own;
  std::vector<Range> shared;
  for (const Param& p : params.params()) {
    if (params.part(p).role == ParamRole::plain)
      shared.push_back(
          range_in(params.grads(), params.piece(params.grads(), p, params.data_rank(), params.data_world())));
  }
  std::sort(shared.begin(), shared.end(), [](Range a, Range b) { return a.begin < b.begin; });
  return without(params.grads(), own, shared);
}

void MeshStrategy::reduce_scalars(const Tensor& scalars) {
  data_->reduce_scalars(scalars);
  const Tensor both = loss_and_squares(scalars);
  if (tensor_.rank() > 0) ctx_.backend().zero(both.raw(), sizeof(double), ctx_.compute());  // the loss
  tensor_.all_reduce(ctx_, both, "loss and squares").wait(ctx_);
}

}  // namespace kiln
