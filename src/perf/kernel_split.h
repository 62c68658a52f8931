// Where a step's milliseconds go on a GPU: records of kernels, put into parts by the kernels' names. By name
// and not by graph node, since a node's id changes when its graph is instantiated, and since kernels that are
// launched by the host have none; the table of names is in kernel_split.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perf/kernel_times.h"
#include "perf/op_times.h"

namespace kiln {

// gemm: every product of the library, also those inside linear_cross_entropy and a composed attention.
// loss: what cross entropy does beside its products. copies: memcpy and memset.
enum class KernelPart { gemm, loss, attention, pointwise, update, scalars, copies };
inline constexpr int kKernelParts = 7;

std::string_view name_of(KernelPart p);

struct KernelPattern {
  std::string_view text;  // in the name as the linker sees it
  KernelPart part;
  bool ours;  // names something of src/ops; else of a library
};
std::span<const KernelPattern> kernel_patterns();  // the first that fits is the one

KernelPart part_of(const KernelRecord& record);

// Where the floor of an op counts: in the part that holds most of its kernels.
KernelPart part_of(const TimedOp& op);

// The kernel, its template arguments and the type of its first parameter, which tells the forward_kernel of
// one op from that of another: "rms_norm_rows::forward_kernel<bf16, 2, true>(RmsNormProblem)".
std::string short_kernel_name(const std::string& name);

struct PartTime {
  KernelPart what = KernelPart::gemm;
  double kernels = 0;  // of a step, like all others
  double ms = 0, floor_ms = 0;
  Cost cost;
};

struct KernelTotal {
  std::string name;
  KernelPart part = KernelPart::gemm;
  double calls = 0, ms = 0;
};

// Of one step: the mean over `steps` that followed each other.
struct KernelSplit {
  int steps = 0;
  std::vector<PartTime> parts;       // those that have kernels; no floors yet
  std::vector<KernelTotal> kernels;  // one for each name, the slowest first
  double sum_ms = 0;                 // of all kernels
  double busy_ms = 0;                // while at least one ran: less than the sum where kernels overlap
  double span_ms = 0;                // from the end of one step to the end of the next

  double gaps_ms() const { return span_ms - busy_ms; }
  double overlap_ms() const { return sum_ms - busy_ms; }
};

// The records are of one step more than `steps`, all of the same work. The first is where the clock starts:
// behind it the GPU finds the next step queued, as in a run.
KernelSplit split_kernels(std::vector<KernelRecord> records, int steps);

// The parts with what their ops must cost; also a part that has ops and no kernels of its own.
std::vector<PartTime> with_floors(const KernelSplit& split, const std::vector<TimedOp>& planned,
                                  const Rates& best);

// While at least one of them ran, in ns, counted from `from_ns`. They are sorted by their start.
uint64_t busy_ns(std::span<const KernelRecord> records, uint64_t from_ns = 0);

}  // namespace kiln
