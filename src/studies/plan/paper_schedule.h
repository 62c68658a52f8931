// Schedules and memory by formula, where there is no model to run on meta: blocks of two linears and nothing
// else (`xxl`). Parallel layouts share the same formulas for the state of a run.
#pragma once

#include "autograd/precision.h"
#include "model/size_registry.h"
#include "studies/plan/layout.h"
#include "train/rank_schedule.h"

namespace kiln {

// What a rank keeps between steps, by tag: the formulas of perf/comm/zero_theory.h. `parameters`: of the
// rank's tensor-parallel part.
PerTag<std::size_t> state_bytes(const Layout& layout, const PrecisionPolicy& policy, int64_t parameters);

struct PaperModel {
  int64_t d_model = 0, d_ff = 0, layers = 0;
  int64_t parameters() const { return 2 * d_model * d_ff * layers; }
};

struct PaperStep {
  Layout layout;
  PrecisionPolicy policy = {};
  int64_t tokens = 0;  // of a micro-step, on a rank
  int micro_steps = 1;
  int prefetch = 1;
  bool recompute = false;  // every block, from its input
};

// y = x W1 by columns, h = act(y), z = h W2 by rows, x + z: with tensor parallelism one sum of `tokens` x
// d_model forward and one backward. Saved for backward are the inputs of both linears. Memory: state, saved
// inputs, the gradient of one block's output, and where weights are sharded the slots they are gathered into.
RankSchedule paper_schedule(const PaperModel& model, const PaperStep& step);

}  // namespace kiln
