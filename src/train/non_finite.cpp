#include "train/non_finite.h"

#include <cmath>
#include <vector>

#include "autograd/rank_context.h"
#include "ops/cpu_rows.h"

namespace kiln {
namespace {

template <class T>
int64_t first_bad(RankContext& ctx, const Tensor& t, double& value) {
  const int64_t rows = t.shape().rows(), cols = t.shape().last();
  const int64_t stride = t.row_stride() * static_cast<int64_t>(sizeof(T));
  std::vector<T> row(static_cast<std::size_t>(cols));
  for (int64_t r = 0; r < rows; ++r) {
    ctx.backend().copy_to_host(row.data(), t.raw() + r * stride, row.size() * sizeof(T), ctx.compute());
    ctx.synchronize();
    for (int64_t c = 0; c < cols; ++c) {
      value = static_cast<double>(widen(row[c]));
      if (!std::isfinite(value)) return r * cols + c;
    }
  }
  return -1;
}

}  // namespace

int64_t first_non_finite(RankContext& ctx, const Tensor& t, double& value) {
  return with_float(t.dtype(), [&](auto zero) { return first_bad<decltype(zero)>(ctx, t, value); });
}

void NonFiniteFinder::on_op_end(RankContext& ctx, const OpEvent& e) {
  for (const NamedTensor& out : e.outputs) {
    if (!out.tensor.defined() || !is_float(out.tensor.dtype())) continue;
    double value = 0;
    const int64_t at = first_non_finite(ctx, out.tensor, value);
    if (at < 0) continue;
    throw Error(cat("[", e.op, "] ", e.variant, " ", e.pass == Pass::forward ? "forward" : "backward", " in ",
                    e.scope.empty() ? "the step" : e.scope, ": output '", out.name, "' ",
                    out.tensor.shape().str(), " holds ", value, " at element ", at));
  }
}

}  // namespace kiln
