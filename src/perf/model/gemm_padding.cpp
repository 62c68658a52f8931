#include "perf/model/gemm_padding.h"

#include <cmath>

#include "ops/gemm/gemm_kernel.h"

namespace kiln {
namespace {

double whole(double n, int64_t tile) {
  const auto t = static_cast<double>(tile);
  return std::ceil(n / t) * t;
}

double padded(double m, double n, double k, const GemmKernel& kernel) {
  return whole(m, kernel.MR) * whole(n, kernel.NR) * whole(k, kernel.k_multiple);
}

}  // namespace

double tile_ratio(const TimedOp& op, DType compute, CpuIsa isa) {
  const bool backward = op.pass == Pass::backward;
  // Backward of `small_m` is the packed one's.
  const bool packed = op.variant == "packed" || (op.variant == "small_m" && backward);
  if (op.op != "linear" || !packed || op.rows <= 0 || op.columns <= 0 || compute == DType::f64) return 1;
  const auto rows = static_cast<double>(op.rows), columns = static_cast<double>(op.columns);
  const double inner = op.cost.flops / ((backward ? 4 : 2) * rows * columns);
  const GemmKernel& kernel = gemm_kernel(compute, isa);
  const double one = padded(rows, columns, inner, kernel);
  if (!backward) return one / (rows * columns * inner);
  // dx [rows, in] sums over out, dweight [out, in] over rows: whichever of the two was written first, the
  // other has its first and last extents exchanged.
  return (one + padded(inner, columns, rows, kernel)) / (2 * rows * columns * inner);
}

}  // namespace kiln
