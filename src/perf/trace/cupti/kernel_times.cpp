#include "perf/trace/kernel_times.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "base/error.h"
#include "perf/trace/cupti/load_cupti.h"

namespace kiln {
namespace {

constexpr std::size_t kBufferBytes = 8 << 20;  // some ten thousand records

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET};
// Some libraries launch through the runtime, some through the driver.
constexpr CUpti_ActivityKind kCallKinds[] = {CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER};

void check(CUptiResult result, const char* call) {
  if (result == CUPTI_SUCCESS) return;
  const char* name = nullptr;
  if (load_cupti().get_result_string(result, &name) != CUPTI_SUCCESS || name == nullptr) name = "unknown";
  const bool taken = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  const bool refused = result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  throw Error(cat("[cupti] ", call, ": ", name),
              taken     ? "CUPTI serves one at a time: run without nsys, ncu or another profiler"
              : refused ? "the driver keeps profiling to administrators (NVreg_RestrictProfilingToAdminUsers)"
                        : "");
}

// CUPTI hands its callbacks no argument of ours and may call them from its own thread, even while the
// process ends: so there is one for the process, and it is never destroyed.
struct Call {
  CUpti_CallbackDomain domain;
  uint32_t id;
  uint64_t start_ns, end_ns;
  uint32_t correlation;
};

struct Sink {
  std::mutex mutex;
  std::vector<KernelRecord> records;
  std::vector<Call> calls;
  int64_t lost = 0;  // dropped for lack of memory, or without times
  bool in_use = false;
};

Sink& sink() {
  static Sink& the_sink = *new Sink;
  return the_sink;
}

template <class Activity>
KernelRecord timed(KernelRecord::Kind kind, const char* name, const Activity& a) {
  return {kind, name != nullptr ? name : "", a.start, a.end, a.graphNodeId, a.correlationId, a.streamId};
}

void keep(const CUpti_Activity& activity, Sink& to) {
  KernelRecord record;
  switch (activity.kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& kernel = reinterpret_cast<const CUpti_ActivityKernel10&>(activity);
      record = timed(KernelRecord::Kind::kernel, kernel.name, kernel);
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      record =
          timed(KernelRecord::Kind::copy, "memcpy", reinterpret_cast<const CUpti_ActivityMemcpy6&>(activity));
      break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
      record =
          timed(KernelRecord::Kind::fill, "memset", reinterpret_cast<const CUpti_ActivityMemset4&>(activity));
      break;
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER: {
      const auto& call = reinterpret_cast<const CUpti_ActivityAPI&>(activity);
      const bool runtime = activity.kind == CUPTI_ACTIVITY_KIND_RUNTIME;
      to.calls.push_back({runtime ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API, call.cbid,
                          call.start, call.end, call.correlationId});
      return;
    }
    default:
      return;
  }
  if (record.end_ns == 0 || record.end_ns < record.start_ns) {
    ++to.lost;
  } else {
    to.records.push_back(std::move(record));
  }
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::malloc(kBufferBytes));  // aligned for any record; none: CUPTI counts
  *size = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t used) {
  Sink& to = sink();
  {
    const std::lock_guard lock(to.mutex);
    CUpti_Activity* activity = nullptr;
    CUptiResult result = CUPTI_SUCCESS;
    while (used > 0 && (result = load_cupti().get_next_record(buffer, used, &activity)) == CUPTI_SUCCESS) {
      try {
        keep(*activity, to);
      } catch (const std::bad_alloc&) {  // the caller is C
        ++to.lost;
      }
    }
    if (result != CUPTI_SUCCESS && result != CUPTI_ERROR_MAX_LIMIT_REACHED) ++to.lost;
  }
  std::free(buffer);
}

void flush() {
  check(load_cupti().flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
  size_t dropped = 0;
  check(load_cupti().get_num_dropped(nullptr, 0, &dropped), "cuptiActivityGetNumDroppedRecords");
  const std::lock_guard lock(sink().mutex);
  sink().lost += static_cast<int64_t>(dropped);
}

void disable_all() {
  for (CUpti_ActivityKind kind : kKinds) (void)load_cupti().disable(kind);
  for (CUpti_ActivityKind kind : kCallKinds) (void)load_cupti().disable(kind);
}

}  // namespace

std::string why_no_kernel_times() { return load_cupti().why_not; }

KernelTimes::KernelTimes(bool calls) {
  const Cupti& cupti = load_cupti();
  if (!cupti.why_not.empty())
    throw Error(cupti.why_not, "put the CUDA toolkit's extras/CUPTI/lib64 or lib64 into LD_LIBRARY_PATH",
                ErrorKind::unavailable);
  {
    const std::lock_guard lock(sink().mutex);
    if (sink().in_use) throw Error("kernel times are being recorded already");
    sink().in_use = true;
  }
  try {
    check(cupti.register_callbacks(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks");
    for (CUpti_ActivityKind kind : kKinds) check(cupti.enable(kind), "cuptiActivityEnable");
    if (calls) {
      for (CUpti_ActivityKind kind : kCallKinds) check(cupti.enable(kind), "cuptiActivityEnable");
    }
  } catch (...) {
    disable_all();
    const std::lock_guard lock(sink().mutex);
    sink().in_use = false;
    throw;
  }
}

KernelTimes::~KernelTimes() {
  disable_all();
  (void)load_cupti().flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const std::lock_guard lock(sink().mutex);
  sink().records = {};
  sink().calls = {};
  sink().in_use = false;
}

void KernelTimes::start() {
  flush();
  const std::lock_guard lock(sink().mutex);
  sink().records.clear();
  sink().calls.clear();
  sink().lost = 0;
}

std::vector<KernelRecord> KernelTimes::stop() {
  flush();
  std::vector<KernelRecord> records;
  int64_t lost = 0;
  {
    const std::lock_guard lock(sink().mutex);
    records.swap(sink().records);
    lost = sink().lost;
  }
  if (lost > 0)
    throw Error(cat("[cupti] ", lost, " records of kernels were lost; ", records.size(), " came"),
                "CUPTI needs some memory on the GPU and on the host: take a smaller batch");
  std::stable_sort(records.begin(), records.end(),
                   [](const KernelRecord& a, const KernelRecord& b) { return a.start_ns < b.start_ns; });
  return records;
}

std::vector<CallRecord> KernelTimes::calls() {
  std::vector<Call> taken;
  {
    const std::lock_guard lock(sink().mutex);
    taken.swap(sink().calls);
  }
  std::vector<CallRecord> calls;
  for (const Call& c : taken) {
    const char* text = nullptr;
    std::string name =
        load_cupti().get_callback_name(c.domain, c.id, &text) == CUPTI_SUCCESS && text != nullptr ? text
                                                                                                  : "call";
    name = name.substr(0, name.find("_v"));  // "cudaGraphLaunch_v10000"
    calls.push_back({std::move(name), c.start_ns, c.end_ns, c.correlation});
  }
  std::stable_sort(calls.begin(), calls.end(),
                   [](const CallRecord& a, const CallRecord& b) { return a.start_ns < b.start_ns; });
  return calls;
}

uint64_t KernelTimes::now_ns() {
  uint64_t now = 0;
  check(load_cupti().get_timestamp(&now), "cuptiGetTimestamp");
  return now;
}

}  // namespace kiln
