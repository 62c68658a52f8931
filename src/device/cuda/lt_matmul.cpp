#include "device/cuda/lt_matmul.h"

#include <bit>
#include <compare>
#include <map>

#include "base/error.h"
#include "device/cuda/cuda_check.h"
#include "device/cuda/cuda_handles.h"

namespace kiln {
namespace {

void check_lt(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(cat("[cublasLt] ", call, ": ", cublasLtGetStatusName(status), " (",
                  cublasLtGetStatusString(status), ")"));
}
#define KILN_LT_CHECK(call) check_lt((call), #call)

cudaDataType_t data_type(DType t) {
  switch (t) {
    case DType::f64:
      return CUDA_R_64F;
    case DType::f32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    default:
      throw Error(cat("[cublasLt] no products of ", name_of(t)));
  }
}

// The largest power of two that divides the address of every row, up to 16 bytes, the widest single access.
// Not more, though the library could be told: a gradient that lies elsewhere in its arena must not get
// another algorithm, or two layouts of the same model would differ in their last bits.
uint32_t alignment(const void* data, int64_t row_stride, DType t) {
  const auto bits =
      reinterpret_cast<std::uintptr_t>(data) | (static_cast<std::uintptr_t>(row_stride) * size_of(t)) | 16u;
  return 1u << std::countr_zero(bits);
}

// All that may influence the choice.
struct Key {
  int64_t m, n, k, a_stride, b_stride, d_stride;
  std::size_t workspace;
  uint32_t a_align, b_align, d_align;
  DType in, out;
  bool a_transposed, b_transposed, accumulate;
  auto operator<=>(const Key&) const = default;
};

Key key_of(const LtMatmul& p, std::size_t workspace) {
  return {p.m,
          p.n,
          p.k,
          p.a.row_stride,
          p.b.row_stride,
          p.d_row_stride,
          workspace,
          alignment(p.a.data, p.a.row_stride, p.in),
          alignment(p.b.data, p.b.row_stride, p.in),
          alignment(p.d, p.d_row_stride, p.out),
          p.in,
          p.out,
          p.a.transposed,
          p.b.transposed,
          p.accumulate};
}

// A problem in cuBLASLt's own terms. The library stores by columns. A row-major matrix is its own transpose
// there, so D = A B is computed as D^T = B^T A^T: first = b, second = a, with their transposition flags as
// they are.
struct Plan {
  LtProductDesc product;
  LtLayout first, second, result;
  cublasLtMatmulAlgo_t algorithm;
};

void set_transposed(const LtProductDesc& product, cublasLtMatmulDescAttributes_t which, bool yes) {
  const cublasOperation_t op = yes ? CUBLAS_OP_T : CUBLAS_OP_N;
  KILN_LT_CHECK(cublasLtMatmulDescSetAttribute(product.get(), which, &op, sizeof op));
}

// [rows, cols] row-major, seen by columns.
LtLayout make_layout(DType t, int64_t rows, int64_t cols, int64_t row_stride) {
  LtLayout layout;
  KILN_LT_CHECK(cublasLtMatrixLayoutCreate(layout.out(), data_type(t), static_cast<uint64_t>(cols),
                                           static_cast<uint64_t>(rows), row_stride));
  return layout;
}

template <class V>
void prefer(const LtPreference& preference, cublasLtMatmulPreferenceAttributes_t which, V value) {
  KILN_LT_CHECK(cublasLtMatmulPreferenceSetAttribute(preference.get(), which, &value, sizeof value));
}

Plan make_plan(cublasLtHandle_t lt, const LtMatmul& p, const Key& key) {
  Plan plan;
  const bool wide = p.in == DType::f64;
  // COMPUTE_32F on fp32 operands means true fp32: TF32 has a name of its own.
  KILN_LT_CHECK(cublasLtMatmulDescCreate(plan.product.out(), wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                         wide ? CUDA_R_64F : CUDA_R_32F));
  set_transposed(plan.product, CUBLASLT_MATMUL_DESC_TRANSA, p.b.transposed);
  set_transposed(plan.product, CUBLASLT_MATMUL_DESC_TRANSB, p.a.transposed);
  plan.first = make_layout(p.in, p.b.transposed ? p.n : p.k, p.b.transposed ? p.k : p.n, p.b.row_stride);
  plan.second = make_layout(p.in, p.a.transposed ? p.k : p.m, p.a.transposed ? p.m : p.k, p.a.row_stride);
  plan.result = make_layout(p.out, p.m, p.n, p.d_row_stride);

  LtPreference preference;
  KILN_LT_CHECK(cublasLtMatmulPreferenceCreate(preference.out()));
  prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(key.workspace));
  prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b_align);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a_align);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.d_align);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.d_align);

  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      lt, plan.product.get(), plan.first.get(), plan.second.get(), plan.result.get(), plan.result.get(),
      preference.get(), 1, &best, &found);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0 || best.state != CUBLAS_STATUS_SUCCESS) {
    throw Error(cat("[cublasLt] no algorithm for ", p.m, " x ", p.n, " x ", p.k, ", ", name_of(p.in), " to ",
                    name_of(p.out), ", row strides ", p.a.row_stride, ", ", p.b.row_stride, ", ",
                    p.d_row_stride, ": ",
                    cublasLtGetStatusName(status != CUBLAS_STATUS_SUCCESS ? status : best.state)));
  }
  plan.algorithm = best.algo;
  return plan;
}

}  // namespace

struct LtMatmuls::Impl {
  CublasLt lt;
  std::map<Key, Plan> plans;
};

LtMatmuls::LtMatmuls() : impl_(std::make_unique<Impl>()) { KILN_LT_CHECK(cublasLtCreate(impl_->lt.out())); }

LtMatmuls::~LtMatmuls() = default;

void LtMatmuls::run(const LtMatmul& p, void* workspace, std::size_t workspace_bytes, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream.handle);
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) {
    if (p.accumulate) return;
    const std::size_t e = size_of(p.out);
    KILN_CUDA_CHECK(cudaMemset2DAsync(p.d, static_cast<std::size_t>(p.d_row_stride) * e, 0,
                                      static_cast<std::size_t>(p.n) * e, static_cast<std::size_t>(p.m), s));
    return;
  }
  const Key key = key_of(p, workspace_bytes);
  auto it = impl_->plans.find(key);
  if (it == impl_->plans.end()) it = impl_->plans.emplace(key, make_plan(impl_->lt.get(), p, key)).first;
  const Plan& plan = it->second;

  const double one = 1, beta = p.accumulate ? 1 : 0;
  const float one_f = 1, beta_f = p.accumulate ? 1 : 0;
  const bool wide = p.in == DType::f64;
  const void* alpha_at = wide ? static_cast<const void*>(&one) : &one_f;
  const void* beta_at = wide ? static_cast<const void*>(&beta) : &beta_f;
  KILN_LT_CHECK(cublasLtMatmul(impl_->lt.get(), plan.product.get(), alpha_at, p.b.data, plan.first.get(),
                               p.a.data, plan.second.get(), beta_at, p.d, plan.result.get(), p.d,
                               plan.result.get(), &plan.algorithm, workspace, workspace_bytes, s));
}

}  // namespace kiln
