// Any text is lines of metrics, some of which are kept: each of them whole, and none a second time when what
// was kept is read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "bounds.h"
#include "rows/metrics_log.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const kiln::Bounds bounded(size);
  const kiln::KeptMetrics kept = kiln::keep_metrics({reinterpret_cast<const char*>(data), size}, 1000);
  if (!kept.text.empty() && kept.text.back() != '\n') std::abort();
  const kiln::KeptMetrics again = kiln::keep_metrics(kept.text, 1000);
  if (again.text != kept.text || again.losses.size() != kept.losses.size()) std::abort();
  return 0;
}
