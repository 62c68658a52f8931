// Which op a kernel ran for. A kernel that the host launched carries the number of the call that launched it,
// and the call happened while some op ran: that is its op. A kernel of a replayed graph has no launch
// call; but a graph runs its kernels in the order in which they were captured, which is the order in which
// the same ops launch them one by one. So a replayed step is matched with a launched one, kernel by kernel,
// and the names must match: attribution by order, checked by name.
#pragma once

#include "perf/trace/kernel_times.h"
#include "perf/trace/trace.h"

namespace kiln {

KernelGroup group_of(const KernelRecord& record, const TracedOp* op);

// What a GPU and its driver did during several steps that were queued one after another.
struct StepRecords {
  std::vector<KernelRecord> kernels;
  std::vector<CallRecord> calls;
  std::vector<uint64_t> begins_ns;  // when the host began each step; one more for the end
  uint64_t zero_ns = 0;             // where the traces' clock begins
};

// Records of one step, by their start; `ops` holds the index of each one's op, or -1.
struct StepKernels {
  std::vector<KernelRecord> kernels;
  std::vector<int> ops;
  std::vector<HostCall> calls;
  uint64_t end_ns = 0;  // of the last kernel in line
};

// The stream on which most kernels ran: what else runs concurrently is copies of the next batch.
uint32_t main_stream(const std::vector<KernelRecord>& kernels);

// Each record to the step during which the host requested it. Without attribution yet.
std::vector<StepKernels> by_step(const StepRecords& records);

// Without calls to match: the records on the main stream in as many equal pieces as there were steps, which
// all ran the same kernels. Nothing where they do not divide.
std::vector<StepKernels> by_count(const StepRecords& records);

// Launched steps: by the time of the call. What runs between two ops belongs to the second: it had to happen
// before that one could begin.
void attribute_launched(StepKernels& step, const StepRecords& records, const std::vector<TracedOp>& ops,
                        uint32_t stream);

// What a replayed step is matched with.
struct KernelOrder {
  std::vector<std::string> names;
  std::vector<int> op_of;
  Trace step;                     // the ops and the memory they took
  std::vector<int> memory_at_op;  // as of OpTracer
};
KernelOrder order_of(const StepKernels& step, uint32_t stream);
void attribute_replayed(StepKernels& step, const KernelOrder& order, uint32_t stream);

// For each of `names` its place in `order`, or -1: the longest common sequence where the two differ.
std::vector<int> align(const std::vector<std::string>& order, const std::vector<std::string>& names);

// The trace of a step: from the end of the one before it to its own end.
Trace trace_of(const StepKernels& step, uint64_t begin_ns, uint64_t zero_ns, std::vector<TracedOp> ops);

// Share of the time of the kernels on `stream` whose op is known.
double attributed_share(const StepKernels& step, uint32_t stream);

}  // namespace kiln
