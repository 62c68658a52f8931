// Traces some steps of a run: ops, memory, and the communicator's calls, on one clock. Before and after those
// steps nothing is attached, and the run takes what it would without.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "dist/comm/comm_call.h"
#include "perf/trace/op_tracer.h"
#include "perf/trace/trace.h"
#include "train/step_hook.h"

namespace kiln {

class Communicator;

// From 1 on, both ends with it; 0: none.
struct StepRange {
  int64_t first = 0, last = 0;
};
inline constexpr int64_t kMostTracedSteps = 1000;

struct RunTrace {
  int64_t first_step = 0;
  std::vector<Trace> steps;
  std::vector<CommRecord> calls;  // times of the same clock
};

class TraceHook final : public StepHook {
 public:
  using Deliver = std::function<void(const RunTrace&)>;

  // `comm` may be null: a single rank.
  TraceHook(RankContext& ctx, Communicator* comm, StepRange range, Deliver deliver);

  // The device is then idle, and a step's end is its own.
  bool needs_result(int64_t step) const override { return is_traced(step) || step + 1 == range_.first; }
  void before_step(int64_t step) override;
  void after_step(int64_t step) override;
  void finish();  // delivers what there is, once

 private:
  bool is_traced(int64_t step) const { return range_.first <= step && step <= range_.last; }

  RankContext& ctx_;
  Communicator* comm_;
  StepRange range_;
  Deliver deliver_;
  std::optional<OpTracer> tracer_;
  RunTrace trace_;
};

}  // namespace kiln
