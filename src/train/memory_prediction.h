// The memory a run will take, predicted before its first step: the real model and the real step run on
// `meta`, where nothing is computed and the allocator counts as on the device. The figures are those
// of the run itself, to the byte, for any precision, recomputation and choice of variants.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "autograd/param_store.h"
#include "device/allocator.h"
#include "dist/strategy/strategies.h"
#include "model/config.h"
#include "perf/memory/memory_trace.h"
#include "perf/timing/op_times.h"
#include "train/step.h"

namespace kiln {

// Elements, by what they are for. A tied head has none of its own.
struct ParamGroups {
  int64_t embedding = 0, attention = 0, mlp = 0, norms = 0, head = 0;
  int64_t total() const { return embedding + attention + mlp + norms + head; }
};

ParamGroups count_params(const ModelConfig& config);

struct MemoryRequest {
  ModelConfig model;
  ParamLayout layout;
  StepOptions step;
  bool evaluates = false;  // validation between steps, with the step's batch and context
  std::string strategy = "none";
  StrategyOptions sharing = {};
  CommOptions comm = {};
  bool saves_copy = false;  // --async-save: a CPU's copy of what is saved is in the same memory
};

// Peaks per tag, each at its own moment, and of the total. `rank` is what the run's context is made with;
// nothing is allocated on its device. Of several ranks: those of this one.
MemoryStats predict_memory(const MemoryRequest& request, const RankOptions& rank);

// The same run with its op calls, whose times are 0: what a time model goes by. Only as many micro-steps are
// run as it takes; step_seconds() counts them all.
struct StepPrediction {
  MemoryStats memory;
  std::vector<TimedOp> ops;  // of one step
  int micro_steps = 1;       // that are in `ops`
};
StepPrediction predict_step(const MemoryRequest& request, const RankOptions& rank);

// Every allocation of that run.
MemoryRecord predict_allocations(const MemoryRequest& request, const RankOptions& rank);

std::string needed_by_tag(const MemoryStats& predicted);  // "param 1.20 GiB, grad 600.00 MiB, ..."

// The largest batch below `asked` whose peak is at most `free_memory`; 0 where not even one sequence fits.
int64_t largest_batch(int64_t asked, std::size_t free_memory,
                      const std::function<std::size_t(int64_t)>& peak_of);

// Refuses a run whose peak is more than `free_memory`: Error with what it needs, tag by tag, its largest
// tensors, and ways to make it fit, each with its peak and its time. To be asked before the first byte is
// allocated: a machine that runs out of memory kills the process, and others with it. `folder` may have the
// machine's calibration.
void check_fits(const MemoryRequest& request, const RankOptions& rank, const MemoryStats& predicted,
                std::size_t free_memory, const std::string& folder = "");

}  // namespace kiln
