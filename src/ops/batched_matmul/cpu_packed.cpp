// packed: each matrix by the packed GEMM, one after the other, all threads on one. Layouts and transposes are
// strides. A gradient shared by several heads is summed over them in fp32 scratch and rounded once.
// Compute bound: 2 B H M N K operations a matmul at the FMA (or AMX) rate of doctor's ceilings.
#include <algorithm>

#include "ops/batched_matmul/batched_matmul.h"
#include "ops/cpu_rows.h"
#include "ops/gemm/cpu_gemm.h"

namespace kiln {
namespace {

// A matrix as the GEMM takes it; `transposed`: read with rows and columns exchanged.
struct Operand {
  void* data;
  int64_t row, col;
};

Operand operand(const Tensor& t, bool in_columns, int64_t cols, int64_t batch, int64_t head,
                bool transposed = false) {
  const MatrixAt at = matrix_at(t, in_columns, cols, batch, head);
  void* data = t.raw() + at.offset * static_cast<int64_t>(size_of(t.dtype()));
  return transposed ? Operand{data, 1, at.row_stride} : Operand{data, at.row_stride, 1};
}

CpuGemm product(int64_t M, int64_t N, int64_t K, const Operand& a, const Operand& b, const Operand& c,
                DType in, DType out, bool accumulate) {
  return {M, N, K, a.data, a.row, a.col, b.data, b.row, b.col, c.data, c.row, in, out, accumulate};
}

// db is stored as b is: [N, K] where transposed, else [K, N].
CpuGemm grad_b_product(const BatchedMatmulProblem& p, const Operand& a, const Operand& dy, const Operand& db,
                       DType out, bool accumulate) {
  const Operand at{a.data, a.col, a.row}, dyt{dy.data, dy.col, dy.row};
  return p.transpose_b ? product(p.N, p.K, p.M, dyt, a, db, p.dtype, out, accumulate)
                       : product(p.K, p.N, p.M, at, dy, db, p.dtype, out, accumulate);
}

bool sums_apart(const BatchedMatmulProblem& p) { return p.group() > 1; }

std::size_t sums_bytes(const BatchedMatmulProblem& p) {
  return sums_apart(p) ? static_cast<std::size_t>(p.K * p.N) * sizeof(float) : 0;
}

// Scratch of the GEMM, the widest any level needs, so that a prediction made elsewhere holds here.
std::size_t gemm_bytes(const BatchedMatmulProblem& p, Pass pass) {
  const Operand a{nullptr, p.K, 1}, y{nullptr, p.N, 1}, any{nullptr, 1, 1};
  std::size_t most = 0;
  for (int i = 0; i < kCpuIsaCount; ++i) {
    const auto isa = static_cast<CpuIsa>(i);
    auto take = [&](const CpuGemm& g) { most = std::max(most, cpu_gemm_workspace(g, isa)); };
    if (pass == Pass::forward) {
      take(product(p.M, p.N, p.K, a, any, y, p.dtype, p.dtype, false));
      continue;
    }
    for (bool add : {false, true}) {
      take(product(p.M, p.K, p.N, y, any, a, p.dtype, p.dtype, add));
      take(grad_b_product(p, a, y, any, sums_apart(p) ? DType::f32 : p.dtype, add));
    }
  }
  return (most + 63) / 64 * 64;
}

void write_sums(RankContext& ctx, const BatchedMatmulBackward& g, const float* sums, const MatrixAt& at) {
  const int64_t rows = g.p.b_rows(), cols = g.p.b_cols();
  with_float(g.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = g.db.tensor.data<T>() + at.offset;
    ctx.pool().parallel_for(rows, row_grain(cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t c = 0; c < cols; ++c)
          put(out[r * at.row_stride + c], static_cast<Accum<T>>(sums[r * cols + c]), g.db.accumulate);
      }
    });
  });
}

void grad_b(RankContext& ctx, const BatchedMatmulBackward& g, int64_t batch, int64_t hb) {
  const BatchedMatmulProblem& p = g.p;
  std::byte* gemm_scratch = g.workspace.raw();
  auto* sums = reinterpret_cast<float*>(gemm_scratch + gemm_bytes(p, Pass::backward));
  const bool apart = sums_apart(p);
  const Operand db =
      apart ? Operand{sums, p.b_cols(), 1} : operand(g.db.tensor, p.b_in_columns, p.b_cols(), batch, hb);
  for (int64_t i = 0; i < p.group(); ++i) {
    const int64_t h = hb * p.group() + i;
    const Operand a = operand(g.a, p.a_in_columns, p.K, batch, h);
    const Operand dy = operand(g.dy, p.y_in_columns, p.N, batch, h);
    cpu_gemm(ctx,
             grad_b_product(p, a, dy, db, apart ? DType::f32 : p.dtype, i > 0 || (!apart && g.db.accumulate)),
             gemm_scratch);
  }
  if (apart) write_sums(ctx, g, sums, matrix_at(g.db.tensor, p.b_in_columns, p.b_cols(), batch, hb));
}

}  // namespace

std::size_t batched_matmul_cpu_packed_workspace(const BatchedMatmulProblem& p, Pass pass) {
  return gemm_bytes(p, pass) + (pass == Pass::backward ? sums_bytes(p) : 0);
}

void batched_matmul_cpu_packed_forward(RankContext& ctx, const BatchedMatmulForward& f) {
  const BatchedMatmulProblem& p = f.p;
  for (int64_t i = 0; i < p.B * p.H; ++i) {
    const int64_t batch = i / p.H, h = i % p.H;
    const Operand a = operand(f.a, p.a_in_columns, p.K, batch, h);
    const Operand b = operand(f.b, p.b_in_columns, p.b_cols(), batch, h / p.group(), p.transpose_b);
    const Operand y = operand(f.y, p.y_in_columns, p.N, batch, h);
    cpu_gemm(ctx, product(p.M, p.N, p.K, a, b, y, p.dtype, p.dtype, false), f.workspace.raw());
  }
}

void batched_matmul_cpu_packed_backward(RankContext& ctx, const BatchedMatmulBackward& g) {
  const BatchedMatmulProblem& p = g.p;
  for (int64_t i = 0; g.da.wanted() && i < p.B * p.H; ++i) {
    const int64_t batch = i / p.H, h = i % p.H;
    const Operand dy = operand(g.dy, p.y_in_columns, p.N, batch, h);
    const Operand b = operand(g.b, p.b_in_columns, p.b_cols(), batch, h / p.group(), !p.transpose_b);
    const Operand da = operand(g.da.tensor, p.a_in_columns, p.K, batch, h);
    cpu_gemm(ctx, product(p.M, p.K, p.N, dy, b, da, p.dtype, p.dtype, g.da.accumulate), g.workspace.raw());
  }
  for (int64_t i = 0; g.db.wanted() && i < p.B * p.Hb; ++i) grad_b(ctx, g, i / p.Hb, i % p.Hb);
}

}  // namespace kiln
