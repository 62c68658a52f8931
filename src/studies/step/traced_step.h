// A model in its own context, ready to be traced.
#pragma once

#include <optional>

#include "device/out_of_memory.h"
#include "perf/trace/step_tracer.h"
#include "studies/step/synthetic_step.h"
#include "train/run/tuned.h"
#include "tune/tune_file.h"

namespace kiln {

struct TracedStep {
  RankContext ctx;
  std::optional<SyntheticStep> step;
  TracedWork work, forward;

  TracedStep(const RankOptions& rank, const std::optional<TuneFile>& tuning, const StepSpec& spec,
             OutOfMemory& full)
      : ctx(rank) {
    ctx.allocator().add_observer(&full);
    if (tuning) use_tuning(ctx, *tuning);
    step.emplace(ctx, spec);
    work = {[this] { step->run(); }, [this] { (void)step->finish(); }};
    forward = {[this] { step->run_forward(); }, [this] { ctx.synchronize(); }};
  }
  TracedStep(const TracedStep&) = delete;
  TracedStep& operator=(const TracedStep&) = delete;
};

// The same step, launched op by op: its replays are matched with it.
inline StepSpec eager(StepSpec spec) {
  spec.step.graph = false;
  return spec;
}

}  // namespace kiln
