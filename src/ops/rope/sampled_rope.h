// The rotation of a model's own frequencies as a sampled case: tokens by themselves, each at its position.
#pragma once

#include "ops/cases/bench_case.h"
#include "ops/rope/rope.h"

namespace kiln {

// `shape`: batch, seq, dim; heads, theta, scaling and the rest are those of `options`.
SampledCase sampled_rope(const BenchShape& shape, const RopeOptions& options, const Sampling& sampling);

}  // namespace kiln
