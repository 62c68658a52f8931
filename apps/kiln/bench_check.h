// Is a variant right: its results beside those of the op's definition, before anybody times it.
#pragma once

#include "studies/op/op.h"
#include "ops/cases/run_case.h"
#include "ops/op_list.h"

namespace kiln::cli {

// The definition everything is judged against: naive, or where there is none, the op made of other ops.
std::string baseline_of(const OpListing& op);

// What the definition gives, on the shape asked for or, where that would take minutes, on a smaller one.
struct Reference {
  BenchShape shape{};
  CaseData data;
  CaseResult exact, low;  // in fp64, and in the dtype
  double seconds = 0;     // of the latter
};

Reference make_reference(const BenchOpRequest& request, const BenchShape& shape, DType dtype,
                         const std::string& baseline);

// Fills in error and allowed of the tensor that comes closest to failing; true when none does. `ctx` has the
// variant chosen.
bool check_variant(RankContext& ctx, const BenchOpRequest& request, const Reference& reference, DType dtype,
                   BenchRow& row);

bool has_backward(const OpBench& bench);
RankOptions options_for(const Device& device, int threads, uint64_t seed);

}  // namespace kiln::cli
