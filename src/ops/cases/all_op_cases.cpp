// The list of cases: each is in its op's folder, <op>/cases.cpp.
#include "ops/cases/op_case.h"

namespace kiln {

using Cases = std::vector<OpCase>();
Cases add_cases, add_rms_norm_cases, attention_cases, batched_matmul_cases, cross_entropy_cases,
    elementwise_cases, embedding_cases, layer_norm_cases, linear_cases, linear_cross_entropy_cases,
    masked_softmax_cases, rms_norm_cases, rope_cases, softmax_cases, swiglu_cases, weighted_sum_cases;

std::vector<OpCase> all_op_cases() {
  std::vector<OpCase> all;
  for (Cases* cases :
       {add_cases, add_rms_norm_cases, attention_cases, batched_matmul_cases, cross_entropy_cases,
        elementwise_cases, embedding_cases, layer_norm_cases, linear_cases, linear_cross_entropy_cases,
        masked_softmax_cases, rms_norm_cases, rope_cases, softmax_cases, swiglu_cases, weighted_sum_cases}) {
    const std::vector<OpCase> list = cases();
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

}  // namespace kiln
