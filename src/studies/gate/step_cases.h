// Every op call of a training step as a case of its own, in the shape, dtype and layout in which the step
// calls it: what the gate checks before a step is timed. Which rows of the tables these calls take, and at
// what cost, is known from meta, and must be what meta plans for the step: an op that no case stands for is
// named.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ops/cases/sampled_case.h"
#include "perf/timing/op_times.h"
#include "studies/step/synthetic_step.h"

namespace kiln {

struct StepCase {
  std::string name;  // "swiglu 2048 x 3072 bf16"
  DType dtype;
  std::function<SampledCase(const Sampling&)> make;
};

// Of all micro-steps and the update, each shape once. `rank`: what the step runs with.
std::vector<StepCase> cases_of_step(const StepSpec& spec, const RankOptions& rank);

// One kind of call, as tables and costs tell it apart from others: op, variant, pass, operations and bytes.
std::string call_of(const TimedOp& op);

// The calls that running a case takes, from meta.
std::vector<TimedOp> calls_of_case(const StepCase& c, const RankOptions& rank);

// Ops of the plan for which no case makes the same call: "adamw naive forward".
std::vector<std::string> uncovered_ops(const std::vector<TimedOp>& planned,
                                       const std::vector<StepCase>& cases, const RankOptions& rank);

}  // namespace kiln
