// A step timed call by call, several times over. On the CPU an observer marks each call; on a GPU the step's
// kernels are traced and charged to the calls they ran for. Either way a step's time is that of its calls,
// what passed before each of them, and what is outside of all.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "device/out_of_memory.h"
#include "perf/timing/op_times.h"
#include "perf/trace/kernel_times.h"
#include "perf/trace/trace.h"
#include "studies/step/synthetic_step.h"
#include "tune/tune_file.h"

namespace kiln {

// One step, in ms.
struct StepCalls {
  double wall = 0;
  std::vector<double> ms, before;  // of each call, in the order they ran

  double outside() const;  // the rest of `wall`
};

// Of calls that overlap, a moment belongs to the one that began first. What belongs to no call is outside.
StepCalls calls_of(const Trace& step, std::size_t calls);

// The same steps, summed up: medians, and of a call's own time the least too.
struct CallTimes {
  std::vector<double> best, typical, before;
  double step = 0;      // median of whole steps
  double outside = 0;   // likewise
  double residual = 0;  // of `step`: what the medians of its parts do not add up to
};
// Throws where the steps did not run the same number of calls, or there are none.
CallTimes call_times(const std::vector<StepCalls>& steps);

// What is timed: on `rank.device`, which is the CPU or a GPU.
struct TimedConfiguration {
  RankOptions rank;
  StepSpec spec;
  std::optional<TuneFile> tuning = {};
};

// A configuration on the CPU, whose steps may alternate with those of another.
class CallTimer {
 public:
  CallTimer(const TimedConfiguration& what, OutOfMemory& full);
  ~CallTimer();

  // A step that is not counted, with the observer there already: it makes the marks.
  void warm_up();
  StepCalls time_step();
  const std::vector<TimedOp>& ops() const { return ops_; }  // of the last step
  MemoryStats memory() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
  std::vector<TimedOp> ops_;
};

struct TimedSteps {
  std::vector<StepCalls> steps;
  MemoryStats memory;
  double attributed = 1;  // of the kernels' time, whose op is known
};

// On a GPU: launched once op by op, so that kernels are known by their ops, and replayed where the
// configuration is captured. `calls`: of a step, from meta.
TimedSteps time_by_kernels(const TimedConfiguration& what, std::size_t calls, int steps, OutOfMemory& full,
                           KernelTimes& times);

}  // namespace kiln
