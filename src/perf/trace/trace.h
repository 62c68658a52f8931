// One step as it ran: the ops the host called, the spans in which something ran for them, and the memory in
// use, on one clock. Where the times come from (clocks on the CPU, CUPTI or events on a GPU) makes no
// difference here, so that all tables of a step (trace_tables.h) come from the same data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/cost.h"
#include "perf/trace/step_phase.h"

namespace kiln {

// Rows of a timeline. On the CPU device an op runs where it is called, so its spans are on the CPU lane.
enum class TraceLane { cpu, gpu, copy, communication };
inline constexpr int kTraceLanes = 4;
std::string_view name_of(TraceLane lane);  // CPU, GPU, copy, communication

// What a kernel does, for the question which of them are matmuls. attention: matmuls and softmax in
// one kernel. reduction: losses and the sums of a step's record.
enum class KernelGroup {
  matmul,
  attention,
  softmax,
  norm,
  elementwise,
  embedding,
  reduction,
  copy,
  optimizer,
};
inline constexpr int kKernelGroups = 9;
std::string_view name_of(KernelGroup g);

// Of an op's own kernels. linear_cross_entropy is matmul: on the CPU its matmuls and its loss are one.
KernelGroup group_of_op(std::string_view op);

// One call of an op, in the order in which the host made them.
struct TracedOp {
  std::string op, variant;
  std::string scope;  // "layers.3.attention.softmax"
  StepPhase phase = StepPhase::forward;
  bool backward = false;    // of the op's own two passes
  bool recomputed = false;  // a forward pass that runs again for backward
  Cost cost;
  double begin_us = 0, end_us = 0;  // on the host
  std::string origin = {};          // "linear < Block::attend < Block::forward", where stacks were taken
};

struct TraceSpan {
  TraceLane lane = TraceLane::cpu;
  KernelGroup group = KernelGroup::elementwise;
  std::string name;  // of a kernel as the linker sees it; else of an op and its variant
  int op = -1;       // index into Trace::ops; -1: nobody's, a copy of the next batch for instance
  double begin_us = 0, end_us = 0;

  double us() const { return end_us - begin_us; }
};

struct HostCall {  // of the GPU's driver, where it was watched
  std::string name;
  double begin_us = 0, end_us = 0;
};

struct MemoryPoint {
  double at_us = 0;
  std::size_t bytes = 0;  // in use from then on
};

struct Trace {
  std::vector<TracedOp> ops;
  std::vector<TraceSpan> spans;  // by their beginning
  std::vector<HostCall> calls;   // by their beginning; empty where nobody watched
  std::vector<MemoryPoint> memory;
  double begin_us = 0, end_us = 0;  // of the step
  bool replayed = false;            // as graphs: no op was called, and `ops` have no times of their own

  double ms() const { return (end_us - begin_us) / 1e3; }
};

// The step whose duration is the median: a step that was, whose parts add up. Of an even number the faster of
// the two in the middle. -1: there are none.
int median_step(const std::vector<Trace>& steps);

// "layers.3.attention" -> "layers.*.attention".
std::string starred(const std::string& scope);

// Where an op lies, outermost first: "forward", "layers.3", "attention", "scores".
std::vector<std::string> range_path(StepPhase phase, const std::string& scope);

}  // namespace kiln
