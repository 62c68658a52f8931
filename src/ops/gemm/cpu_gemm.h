// The CPU's GEMM: C[M, N] (=|+=) A[M, K] B[K, N], any strides on A and B, in the rank's thread pool
// and instruction set. Sums run over K in fixed blocks, so results do not depend on the number of threads.
#pragma once

#include "autograd/rank_context.h"

namespace kiln {

struct CpuGemm {
  int64_t M, N, K;
  const void* a;
  int64_t a_row, a_col;  // distance in elements between rows and between columns; one of the two is 1
  const void* b;
  int64_t b_row, b_col;
  void* c;
  int64_t c_row;  // columns of C are dense
  DType in;       // of A and B: fp32, bf16, fp16
  DType out;      // of C: fp32, or as `in`
  bool accumulate = false;
  float alpha = 1;  // scales the product
};

// Scratch for packed panels; a fixed amount per problem, whatever the number of threads.
std::size_t cpu_gemm_workspace(const CpuGemm& g, CpuIsa isa);
void cpu_gemm(RankContext& ctx, const CpuGemm& g, std::byte* workspace);

}  // namespace kiln
