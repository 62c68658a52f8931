// A matrix product in cuBLASLt's own terms: what run and tune of LtMatmuls share.
#pragma once

#include <compare>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/cuda/cuda_handles.h"
#include "device/cuda/lt_matmul.h"

namespace kiln {

void check_lt(cublasStatus_t status, const char* call);
#define KILN_LT_CHECK(call) ::kiln::check_lt((call), #call)

// All that may influence the choice of an algorithm.
struct LtKey {
  int64_t m, n, k, a_stride, b_stride, d_stride;
  int64_t batch, a_batch_stride, b_batch_stride, d_batch_stride;
  std::size_t workspace;
  uint32_t a_align, b_align, d_align;
  DType in, out;
  bool a_transposed, b_transposed, accumulate, tf32;
  auto operator<=>(const LtKey&) const = default;
  std::string str() const;
};

LtKey lt_key(const LtMatmul& p, std::size_t workspace);

// The library stores by columns. A row-major matrix is its own transpose there, so D = A B is computed as
// D^T = B^T A^T: first = b, second = a, with their transposition flags as they are.
struct LtPlan {
  LtProductDesc product;
  LtLayout first, second, result;
  cublasLtMatmulAlgo_t algorithm{};
  int64_t calls = 0;
};

LtPlan describe(const LtKey& key);  // all but the algorithm

// The library's suggestions, best first, of those that are deterministic; at least one, or an error.
std::vector<cublasLtMatmulAlgo_t> suggestions(cublasLtHandle_t lt, const LtPlan& plan, const LtKey& key,
                                              int wanted);

// Throws where an algorithm, chosen earlier, cannot do this.
void check_choice(cublasLtHandle_t lt, const LtPlan& plan, const LtKey& key,
                  const cublasLtMatmulAlgo_t& algorithm);

void run_plan(cublasLtHandle_t lt, const LtPlan& plan, const cublasLtMatmulAlgo_t& algorithm,
              const LtMatmul& p, void* workspace, std::size_t workspace_bytes, cudaStream_t stream);

struct LtMatmuls::Impl {
  CublasLt lt;
  std::map<LtKey, LtPlan> plans;
  std::map<std::string, cublasLtMatmulAlgo_t, std::less<>> chosen;  // by LtKey::str()
};

}  // namespace kiln
