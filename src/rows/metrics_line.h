// A line of metrics.jsonl as it is read back: a step's figures, or a validation's.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace kiln {

struct MetricsLine {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  int64_t step = 0;
  double loss = kNone, lr = kNone, grad_norm = kNone, clip = kNone, loss_scale = kNone;
  double seconds = kNone, tokens = kNone, host_wait_ms = kNone, stall_ms = kNone;
  double at = kNone;          // when it was written: seconds since 1970
  double peak_bytes = kNone;  // of memory, up to then
  double validation_loss = kNone;
  bool skipped = false;
  bool is_step = false;  // else a validation
};

// Nothing where the line is not one of metrics.jsonl. A flat object of numbers, which is what is written
// there, is read in less than a microsecond; keys that are not known here are passed over.
std::optional<MetricsLine> read_metrics_line(std::string_view line);

}  // namespace kiln
