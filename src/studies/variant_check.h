// Is a variant right: its results against those of the op's definition, before it is timed.
#pragma once

#include "ops/cases/sampled_check.h"
#include "ops/op_list.h"
#include "studies/op/op.h"

namespace kiln {

// The reference everything is checked against: naive, or where there is none, the op made of other ops.
std::string baseline_of(const OpListing& op);

// What the definition gives for some rows of a shape, all of them where that is a matter of moments.
SampledReference make_reference(const BenchOpRequest& request, const BenchShape& shape, DType dtype);
// How long a forward and backward pass of the definition would take on all rows, from what those took.
double baseline_seconds(const SampledReference& reference);

// Fills in error and allowed of the tensor that comes closest to failing, and how much was looked at; true
// when none fails. `ctx` has the variant chosen.
bool check_variant(RankContext& ctx, const SampledReference& reference, BenchRow& row);

bool has_backward(const OpBench& bench);

// "flash,naive": variants an op has on a kind of device, each once; empty for "" and "all". Throws
// Error(usage).
std::vector<std::string> read_variants(std::string_view option, std::string_view op, const std::string& text,
                                       DeviceType device);

RankOptions options_for(const Device& device, int threads, uint64_t seed);

}  // namespace kiln
