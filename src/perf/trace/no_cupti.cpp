#include "base/error.h"
#include "perf/trace/kernel_times.h"

namespace kiln {

std::string why_no_kernel_times() { return "built without CUPTI, the profiling library of the CUDA toolkit"; }

KernelTimes::KernelTimes(bool /*calls*/) {
  throw Error(why_no_kernel_times(), "run `make cuda` where the toolkit has cupti.h", ErrorKind::unavailable);
}

KernelTimes::~KernelTimes() = default;

void KernelTimes::start() {}

std::vector<KernelRecord> KernelTimes::stop() { return {}; }

std::vector<CallRecord> KernelTimes::calls() { return {}; }

uint64_t KernelTimes::now_ns() { return 0; }

}  // namespace kiln
