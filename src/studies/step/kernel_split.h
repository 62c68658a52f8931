// What a step's milliseconds are spent on, on a GPU: the kernels of traced steps, grouped by the ops
// they ran for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perf/timing/op_times.h"
#include "perf/trace/trace.h"

namespace kiln {

// gemm: every GEMM of the library, also those inside linear_cross_entropy and a composed attention.
// loss: what cross entropy does besides its matmuls. copies: memcpy and memset. unknown: kernels whose op the
// trace does not know.
enum class KernelPart { gemm, loss, attention, pointwise, update, scalars, copies, unknown };
inline constexpr int kKernelParts = 8;

std::string_view name_of(KernelPart p);

KernelPart part_of(const TraceSpan& span, const TracedOp* op);

// Where the roofline of an op counts: in the part that holds most of its kernels.
KernelPart part_of(const TimedOp& op);

struct PartTime {
  KernelPart what = KernelPart::gemm;
  double kernels = 0;  // of a step, like all others
  double ms = 0, roofline_ms = 0;
  Cost cost;
};

struct KernelTotal {
  std::string name;
  KernelPart part = KernelPart::gemm;
  double calls = 0, ms = 0;
};

// Of one step: the mean over those that were traced.
struct KernelSplit {
  int steps = 0;
  std::vector<PartTime> parts;       // those that have kernels; without their rooflines yet
  std::vector<KernelTotal> kernels;  // one for each name and part, the slowest first
  double sum_ms = 0;                 // of all kernels
  double busy_ms = 0;                // while at least one ran: less than the sum where kernels overlap
  double span_ms = 0;                // from the end of one step to the end of the next

  double gaps_ms() const { return span_ms - busy_ms; }
  double overlap_ms() const { return sum_ms - busy_ms; }
};

KernelSplit split_of(const std::vector<Trace>& steps);

// The parts with what their ops must cost; also a part that has ops and no kernels of its own.
std::vector<PartTime> with_rooflines(const KernelSplit& split, const std::vector<TimedOp>& planned,
                                     const Rates& best);

}  // namespace kiln
