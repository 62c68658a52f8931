// When each kernel and each copy ran, by the GPU's clock: CUPTI's activity records. They cover kernels of
// replayed graphs too, where no op is called and no mark can be between two nodes. A record lacks
// the op that launched it: kernel_attribution.h finds it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kiln {

struct KernelRecord {
  enum class Kind { kernel, copy, fill };
  Kind kind = Kind::kernel;
  std::string name;  // of a kernel, as the linker sees it
  uint64_t start_ns = 0, end_ns = 0;
  uint64_t graph_node = 0;   // 0: launched by the host
  uint32_t correlation = 0;  // of the call that launched it, or the graph it is in
  uint32_t stream = 0;
};

// A call of the host to the runtime or the driver.
struct CallRecord {
  std::string name;
  uint64_t start_ns = 0, end_ns = 0;
  uint32_t correlation = 0;
};

// Why there are no records to be had here; empty where there are. Loads CUPTI, which attaches to nothing
// until a KernelTimes is made.
std::string why_no_kernel_times();

// CUPTI is attached while one lives, and every launch costs the host more; what is to be timed by the clock
// is timed before. Make it before the graphs that are to be watched are captured, and only one at a time.
class KernelTimes {
 public:
  // Throws where why_no_kernel_times() has a reason, and where CUPTI refuses. With `calls` the host's calls
  // are recorded too, which makes each of them even slower.
  explicit KernelTimes(bool calls = false);
  ~KernelTimes();  // NOLINT(performance-trivially-destructible): not where there is CUPTI to detach
  KernelTimes(const KernelTimes&) = delete;
  KernelTimes& operator=(const KernelTimes&) = delete;

  // At start() and stop() the device must be idle: a record is whole when its kernel is done.
  void start();                      // forgets what ran before
  std::vector<KernelRecord> stop();  // what ran since, by start. Throws where records were lost
  std::vector<CallRecord> calls();   // of the same time, by start; once, after stop()

  static uint64_t now_ns();  // on the clock of the records
};

}  // namespace kiln
