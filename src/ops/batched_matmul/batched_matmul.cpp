#include "ops/batched_matmul/batched_matmul.h"

#include "ops/check.h"
#include "ops/op_call.h"

namespace kiln {
namespace {

Shape stack(int64_t batches, int64_t heads, int64_t rows, int64_t cols, bool in_columns) {
  return in_columns ? Shape{batches, rows, heads * cols} : Shape{batches, heads, rows, cols};
}

Shape shape_of_a(const BatchedMatmulProblem& p) { return stack(p.B, p.H, p.M, p.K, p.a_in_columns); }
Shape shape_of_b(const BatchedMatmulProblem& p) {
  return stack(p.B, p.Hb, p.b_rows(), p.b_cols(), p.b_in_columns);
}
DType same(const BatchedMatmulProblem& p) { return p.dtype; }

const SaveDecl<BatchedMatmulProblem> kSaves[] = {
    {"a", SavedFrom::input, shape_of_a, same},
    {"b", SavedFrom::input, shape_of_b, same},
};

std::string packed_unsupported(const BatchedMatmulProblem& p, const DeviceTraits&) {
  return p.dtype == DType::f64 ? "fp64 has no packed kernel" : "";
}

std::string lt_unsupported(const BatchedMatmulProblem& p, const DeviceTraits& traits) {
  if (p.dtype == DType::bf16 && traits.compute_capability < 80)
    return "bf16 matmuls need compute capability 8.0";
  return {};
}

// Sums of a gradient that several heads share, before it is rounded.
std::size_t lt_workspace(const BatchedMatmulProblem& p, Pass pass) {
  if (pass == Pass::forward || p.group() == 1) return 0;
  return static_cast<std::size_t>(p.K * p.N) * size_of(stat_dtype(p.dtype));
}

const Variant<BatchedMatmulOp> kRows[] = {
    {"packed", DeviceType::cpu, packed_unsupported, kSaves, batched_matmul_cpu_packed_workspace,
     BatchedMatmulOp::cost, batched_matmul_cpu_packed_forward, batched_matmul_cpu_packed_backward,
     Kernels("gemm/cpu_gemm.cpp", "gemm/cpu_gemm.cpp batched_matmul/cpu_packed.cpp")},
    {"naive", DeviceType::cpu, nullptr, kSaves, nullptr, BatchedMatmulOp::cost,
     batched_matmul_cpu_naive_forward, batched_matmul_cpu_naive_backward, "batched_matmul/cpu_naive.cpp"},
    {"lt", DeviceType::cuda, lt_unsupported, kSaves, lt_workspace, BatchedMatmulOp::cost,
     KILN_CUDA_FN(batched_matmul_cuda_lt_forward), KILN_CUDA_FN(batched_matmul_cuda_lt_backward),
     Kernels("cublasLtMatmul", "cublasLtMatmul write_sums_kernel")},
};

// Columns of the matrices in `t`, whose heads are side by side or one after the other.
int64_t columns_of(const char* name, const Tensor& t, int64_t heads) {
  const char* op = BatchedMatmulOp::kName;
  const Shape& s = t.shape();
  if (s.rank() == 4) {
    if (s[1] != heads) fail(op, cat(name, " ", s.str(), " has ", s[1], " heads, ", heads, " were named"));
  } else if (s.rank() != 3) {
    fail(op,
         cat(name, " has shape ", s.str(), ", [B, heads, rows, cols] or [B, rows, heads * cols] is needed"));
  } else if (s.last() % heads != 0) {
    fail(op, cat("last axis of ", name, " ", s.str(), " is not a multiple of ", heads, " heads"));
  }
  if (s.last() > 1 && t.stride(-1) != 1)
    fail(op, cat("rows of ", name, " ", s.str(), " are not dense"), "make it contiguous first");
  return s.rank() == 4 ? s.last() : s.last() / heads;
}

BatchedMatmulProblem checked_problem(RankContext& ctx, const Tensor& a, const Tensor& b,
                                     const BatchedMatmulOptions& o) {
  const char* op = BatchedMatmulOp::kName;
  check_float_tensor(ctx, op, "a", a);
  check_tensor(ctx, op, "b", b, a.dtype());
  if (o.heads < 1 || o.b_heads < 1 || o.heads % o.b_heads != 0) {
    fail(op, cat(o.heads, " heads of a do not share ", o.b_heads, " heads of b"),
         "heads must be a multiple of b_heads");
  }
  const int64_t a_cols = columns_of("a", a, o.heads), b_cols = columns_of("b", b, o.b_heads);
  const int64_t b_rows = b.dim(-2 + b.shape().rank());
  BatchedMatmulProblem p{};
  p.B = a.dim(0), p.H = o.heads, p.Hb = o.b_heads;
  p.M = a.dim(-2 + a.shape().rank()), p.K = a_cols, p.N = o.transpose_b ? b_rows : b_cols;
  p.dtype = a.dtype();
  p.transpose_b = o.transpose_b;
  p.a_in_columns = a.shape().rank() == 3, p.b_in_columns = b.shape().rank() == 3;
  p.y_in_columns = o.y_in_columns;
  if (b.shape() != shape_of_b(p)) {
    fail(op, cat("a ", a.shape().str(), " and b ", b.shape().str(), o.transpose_b ? ", transposed," : "",
                 " do not fit: ", shape_of_b(p).str(), " is needed"));
  }
  return p;
}

}  // namespace

Cost BatchedMatmulOp::cost(const BatchedMatmulProblem& p, Pass pass) {
  const double flops = 2.0 * static_cast<double>(p.B * p.H) * static_cast<double>(p.M) *
                       static_cast<double>(p.N) * static_cast<double>(p.K);
  const double matrices = static_cast<double>(p.B * (p.H * p.M * (p.K + p.N) + p.Hb * p.N * p.K)) *
                          static_cast<double>(size_of(p.dtype));
  return pass == Pass::forward ? Cost{flops, matrices} : Cost{2 * flops, 2 * matrices};
}

std::span<const Variant<BatchedMatmulOp>> BatchedMatmulOp::rows() { return kRows; }

Tensor batched_matmul(RankContext& ctx, const Tensor& a, const Tensor& b,
                      const BatchedMatmulOptions& options) {
  const BatchedMatmulProblem p = checked_problem(ctx, a, b, options);
  OpCall<BatchedMatmulOp> call(ctx, p, options.variant);
  Tensor y = ctx.empty(stack(p.B, p.H, p.M, p.N, p.y_in_columns), p.dtype);
  {
    const Tensor workspace = call.workspace();
    call.run({p, a, b, y, workspace}, {{"y", y}});
  }
  call.record({&a, &b}, {}, {&y}, {{"a", a}, {"b", b}});
  return y;
}

void BatchedMatmulOp::run_backward(BackwardPass& pass) {
  BackwardCall<BatchedMatmulOp> call(pass);
  const GradSlot da = pass.grad_in(0), db = pass.grad_in(1);
  const Tensor workspace = call.workspace();
  call.run({call.problem(), pass.grad_out(), pass.saved("a"), pass.saved("b"), da, db, workspace},
           {{"da", da.tensor}, {"db", db.tensor}});
}

}  // namespace kiln
