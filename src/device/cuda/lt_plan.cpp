#include "device/cuda/lt_plan.h"

#include <bit>

#include "base/kernel_log.h"

namespace kiln {
namespace {

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
uint32_t alignment(const void* data, int64_t row_stride, int64_t batch_stride, DType t) {
  const auto strides = static_cast<std::uintptr_t>(row_stride) | static_cast<std::uintptr_t>(batch_stride);
  const auto bits = reinterpret_cast<std::uintptr_t>(data) | (strides * size_of(t)) | 16u;
  return 1u << std::countr_zero(bits);
}

void set_transposed(const LtProductDesc& product, cublasLtMatmulDescAttributes_t which, bool yes) {
  const cublasOperation_t op = yes ? CUBLAS_OP_T : CUBLAS_OP_N;
  KILN_LT_CHECK(cublasLtMatmulDescSetAttribute(product.get(), which, &op, sizeof op));
}

// [rows, cols] row-major, seen by columns.
LtLayout make_layout(DType t, int64_t rows, int64_t cols, int64_t row_stride, int64_t batch,
                     int64_t batch_stride) {
  LtLayout layout;
  KILN_LT_CHECK(cublasLtMatrixLayoutCreate(layout.out(), data_type(t), static_cast<uint64_t>(cols),
                                           static_cast<uint64_t>(rows), row_stride));
  if (batch == 1) return layout;
  const auto count = static_cast<int32_t>(batch);
  KILN_LT_CHECK(cublasLtMatrixLayoutSetAttribute(layout.get(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                 sizeof count));
  KILN_LT_CHECK(cublasLtMatrixLayoutSetAttribute(layout.get(), CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                 &batch_stride, sizeof batch_stride));
  return layout;
}

template <class V>
void prefer(const LtPreference& preference, cublasLtMatmulPreferenceAttributes_t which, V value) {
  KILN_LT_CHECK(cublasLtMatmulPreferenceSetAttribute(preference.get(), which, &value, sizeof value));
}

}  // namespace

void check_lt(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(cat("[cublasLt] ", call, ": ", cublasLtGetStatusName(status), " (",
                  cublasLtGetStatusString(status), ")"));
}

LtKey lt_key(const LtMatmul& p, std::size_t workspace) {
  return {p.m,
          p.n,
          p.k,
          p.a.row_stride,
          p.b.row_stride,
          p.d_row_stride,
          p.batch,
          p.a.batch_stride,
          p.b.batch_stride,
          p.d_batch_stride,
          workspace,
          alignment(p.a.data, p.a.row_stride, p.a.batch_stride, p.in),
          alignment(p.b.data, p.b.row_stride, p.b.batch_stride, p.in),
          alignment(p.d, p.d_row_stride, p.d_batch_stride, p.out),
          p.in,
          p.out,
          p.a.transposed,
          p.b.transposed,
          p.accumulate,
          p.tf32};
}

// "2048x2304x768 bf16*bf16T->bf16 strides 768,768,2304 align 16,16,16 workspace 33554432"
std::string LtKey::str() const {
  return cat(
      m, "x", n, "x", k, " ", name_of(in), a_transposed ? "T" : "", "*", name_of(in), b_transposed ? "T" : "",
      accumulate ? "+>" : "->", name_of(out), tf32 ? " tf32" : "", " strides ", a_stride, ",", b_stride, ",",
      d_stride, " align ", a_align, ",", b_align, ",", d_align, " workspace ", workspace,
      batch == 1 ? std::string()
                 : cat(" batch ", batch, " by ", a_batch_stride, ",", b_batch_stride, ",", d_batch_stride));
}

LtPlan describe(const LtKey& k) {
  LtPlan plan;
  const bool wide = k.in == DType::f64;
  // COMPUTE_32F on fp32 operands means true fp32: TF32 has a name of its own.
  const cublasComputeType_t compute = wide     ? CUBLAS_COMPUTE_64F
                                      : k.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                               : CUBLAS_COMPUTE_32F;
  KILN_LT_CHECK(cublasLtMatmulDescCreate(plan.product.out(), compute, wide ? CUDA_R_64F : CUDA_R_32F));
  set_transposed(plan.product, CUBLASLT_MATMUL_DESC_TRANSA, k.b_transposed);
  set_transposed(plan.product, CUBLASLT_MATMUL_DESC_TRANSB, k.a_transposed);
  plan.first = make_layout(k.in, k.b_transposed ? k.n : k.k, k.b_transposed ? k.k : k.n, k.b_stride, k.batch,
                           k.b_batch_stride);
  plan.second = make_layout(k.in, k.a_transposed ? k.k : k.m, k.a_transposed ? k.m : k.k, k.a_stride, k.batch,
                            k.a_batch_stride);
  plan.result = make_layout(k.out, k.m, k.n, k.d_stride, k.batch, k.d_batch_stride);
  return plan;
}

std::vector<cublasLtMatmulAlgo_t> suggestions(cublasLtHandle_t lt, const LtPlan& plan, const LtKey& key,
                                              int wanted) {
  LtPreference preference;
  KILN_LT_CHECK(cublasLtMatmulPreferenceCreate(preference.out()));
  prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(key.workspace));
  prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b_align);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a_align);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.d_align);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.d_align);

  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(wanted));
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      lt, plan.product.get(), plan.first.get(), plan.second.get(), plan.result.get(), plan.result.get(),
      preference.get(), wanted, found.data(), &count);
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < count; ++i) {
    if (found[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(found[i].algo);
  }
  if (algorithms.empty())
    throw Error(cat("[cublasLt] no algorithm for ", key.str(), ": ", cublasLtGetStatusName(status)));
  return algorithms;
}

void check_choice(cublasLtHandle_t lt, const LtPlan& plan, const LtKey& key,
                  const cublasLtMatmulAlgo_t& algorithm) {
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(lt, plan.product.get(), plan.first.get(), plan.second.get(), plan.result.get(),
                              plan.result.get(), &algorithm, &result);
  if (status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= key.workspace) return;
  throw Error(cat("[cublasLt] the algorithm chosen by tuning cannot do ", key.str(), " here: ",
                  status != CUBLAS_STATUS_SUCCESS ? cublasLtGetStatusName(status) : "not enough workspace"),
              "the choices are of another GPU or library: run `kiln tune` again");
}

void run_plan(cublasLtHandle_t lt, const LtPlan& plan, const cublasLtMatmulAlgo_t& algorithm,
              const LtMatmul& p, void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
  const double one = 1, beta = p.accumulate ? 1 : 0;
  const float one_f = 1, beta_f = p.accumulate ? 1 : 0;
  const bool wide = p.in == DType::f64;
  const void* alpha_at = wide ? static_cast<const void*>(&one) : &one_f;
  const void* beta_at = wide ? static_cast<const void*>(&beta) : &beta_f;
  if (KernelLog::listening()) KernelLog::note("cublasLtMatmul");
  KILN_LT_CHECK(cublasLtMatmul(lt, plan.product.get(), alpha_at, p.b.data, plan.first.get(), p.a.data,
                               plan.second.get(), beta_at, p.d, plan.result.get(), p.d, plan.result.get(),
                               &algorithm, workspace, workspace_bytes, stream));
}

}  // namespace kiln
