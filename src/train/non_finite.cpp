#include "train/non_finite.h"

#include <cmath>
#include <vector>

#include "autograd/rank_context.h"
#include "ops/cpu_rows.h"

namespace kiln {
namespace {

// Calls f(row, values) until it answers false.
template <class T, class F>
void for_each_row(RankContext& ctx, const Tensor& t, F f) {
  const int64_t rows = t.shape().rows(), cols = t.shape().last();
  const int64_t stride = t.row_stride() * static_cast<int64_t>(sizeof(T));
  std::vector<T> row(static_cast<std::size_t>(cols));
  for (int64_t r = 0; r < rows; ++r) {
    ctx.backend().copy_to_host(row.data(), t.raw() + r * stride, row.size() * sizeof(T), ctx.compute());
    ctx.synchronize();
    if (!f(r, row)) return;
  }
}

template <class T>
int64_t first_bad(RankContext& ctx, const Tensor& t, double& value) {
  int64_t at = -1;
  for_each_row<T>(ctx, t, [&](int64_t r, const std::vector<T>& row) {
    for (std::size_t c = 0; c < row.size() && at < 0; ++c) {
      value = static_cast<double>(widen(row[c]));
      if (!std::isfinite(value)) at = r * static_cast<int64_t>(row.size()) + static_cast<int64_t>(c);
    }
    return at < 0;
  });
  return at;
}

}  // namespace

int64_t first_non_finite(RankContext& ctx, const Tensor& t, double& value) {
  return with_float(t.dtype(), [&](auto zero) { return first_bad<decltype(zero)>(ctx, t, value); });
}

std::vector<float> float_values(RankContext& ctx, const Tensor& t) {
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(t.numel()));
  with_float(t.dtype(), [&](auto zero) {
    for_each_row<decltype(zero)>(ctx, t, [&](int64_t, const auto& row) {
      for (const auto v : row) values.push_back(static_cast<float>(widen(v)));
      return true;
    });
  });
  return values;
}

void NonFiniteFinder::on_op_end(RankContext& ctx, const OpEvent& e) {
  ++ops_;
  for (const NamedTensor& out : e.outputs) {
    if (!found_.empty() || !out.tensor.defined() || !is_float(out.tensor.dtype())) continue;
    double value = 0;
    const int64_t at = first_non_finite(ctx, out.tensor, value);
    if (at < 0) continue;
    const char* const pass = e.pass == Pass::forward ? "forward" : "backward";
    const std::string_view scope = e.scope.empty() ? "the step" : e.scope;
    found_ = cat("[", e.op, "] ", e.variant, " ", pass, " in ", scope, ": output '", out.name, "' ",
                 out.tensor.shape().str(), " holds ", value, " at element ", at);
    op_ = ops_;
    tensor_ = cat(scope, ": ", e.op, " ", pass, " ", out.name);
    shape_ = out.tensor.shape();
    values_ = float_values(ctx, out.tensor);
  }
}

}  // namespace kiln
