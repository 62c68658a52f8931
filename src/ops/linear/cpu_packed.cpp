// The three matmuls through the packed GEMM: y = x W^T, dx = dy W, dW = dy^T x. Transposes are strides;
// nothing is copied whole. Compute bound: 2 rows in out operations each at the FMA (or AMX) rate of doctor's
// ceilings.
#include <algorithm>

#include "ops/gemm/cpu_gemm.h"
#include "ops/linear/linear.h"

namespace kiln {
namespace {

CpuGemm forward_product(const LinearProblem& p) {
  return {p.rows, p.out, p.in, nullptr, p.in, 1, nullptr, 1, p.in, nullptr, p.out, p.dtype, p.dtype};
}

CpuGemm dgrad_product(const LinearProblem& p) {
  return {p.rows, p.in, p.out, nullptr, p.out, 1, nullptr, p.in, 1, nullptr, p.in, p.dtype, p.dtype};
}

CpuGemm wgrad_product(const LinearProblem& p) {
  return {p.out, p.in, p.rows, nullptr, 1, p.out, nullptr, p.in, 1, nullptr, p.in, p.dtype, DType::f32};
}

}  // namespace

std::size_t linear_cpu_packed_workspace(const LinearProblem& p, Pass pass) {
  // The widest any level needs, so that a prediction made elsewhere holds here.
  std::size_t most = 0;
  for (int i = 0; i < kCpuIsaCount; ++i) {
    const auto isa = static_cast<CpuIsa>(i);
    if (pass == Pass::forward) {
      most = std::max(most, cpu_gemm_workspace(forward_product(p), isa));
    } else {
      most = std::max(
          {most, cpu_gemm_workspace(dgrad_product(p), isa), cpu_gemm_workspace(wgrad_product(p), isa)});
    }
  }
  return most;
}

void linear_cpu_packed_forward(RankContext& ctx, const LinearForward& f) {
  CpuGemm g = forward_product(f.p);
  g.a = f.x.raw();
  g.a_row = f.x.row_stride();
  g.b = f.weight.raw();
  g.b_col = f.weight.row_stride();
  g.c = f.y.raw();
  g.c_row = f.y.row_stride();
  cpu_gemm(ctx, g, f.workspace.raw());
}

void linear_cpu_packed_backward(RankContext& ctx, const LinearBackward& b) {
  if (b.dx.wanted()) {
    CpuGemm g = dgrad_product(b.p);
    g.a = b.dy.raw();
    g.a_row = b.dy.row_stride();
    g.b = b.weight.raw();
    g.b_row = b.weight.row_stride();
    g.c = b.dx.tensor.raw();
    g.c_row = b.dx.tensor.row_stride();
    g.accumulate = b.dx.accumulate;
    cpu_gemm(ctx, g, b.workspace.raw());
  }
  if (b.dweight.wanted()) {
    CpuGemm g = wgrad_product(b.p);
    g.a = b.dy.raw();
    g.a_col = b.dy.row_stride();
    g.b = b.x.raw();
    g.b_row = b.x.row_stride();
    g.c = b.dweight.tensor.raw();
    g.c_row = b.dweight.tensor.row_stride();
    g.out = b.dweight.tensor.dtype();
    g.accumulate = b.dweight.accumulate;
    cpu_gemm(ctx, g, b.workspace.raw());
  }
}

}  // namespace kiln
