// A model in a context of its own, ready to be traced.
#pragma once

#include <optional>

#include "tune/tune_file.h"
#include "device/out_of_memory.h"
#include "train/run/tuned.h"
#include "studies/step/synthetic_step.h"
#include "perf/trace/step_tracer.h"

namespace kiln::cli {

struct ReadyStep {
  RankContext ctx;
  std::optional<StepRun> step;
  TracedWork work, forward;

  ReadyStep(const RankOptions& rank, const std::optional<TuneFile>& tuning, const StepSpec& spec,
            OutOfMemory& full)
      : ctx(rank) {
    ctx.allocator().add_observer(&full);
    if (tuning) use_tuning(ctx, *tuning);
    step.emplace(ctx, spec);
    work = {[this] { step->run(); }, [this] { (void)step->finish(); }};
    forward = {[this] { step->run_forward(); }, [this] { ctx.synchronize(); }};
  }
  ReadyStep(const ReadyStep&) = delete;
  ReadyStep& operator=(const ReadyStep&) = delete;
};

// The same step, launched op by op: what its replays are told by.
inline StepSpec eager(StepSpec spec) {
  spec.step.graph = false;
  return spec;
}

}  // namespace kiln::cli
