// Reads a run's folder while it is written, and afterwards: what run.json says of it, and the lines of
// metrics.jsonl that have come since the last time. A line that is not yet whole is read when it is; a file
// that was replaced, by a run that resumes or restarts, is read from its beginning.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "rows/metrics_line.h"
#include "studies/watch/thin_curve.h"

namespace kiln {

// What run.json says before the first step. A value it does not have is 0, or empty.
struct WatchedFacts {
  bool known = false;
  std::string model, precision, strategy, device;
  int64_t steps = 0, first_step = 0, ranks = 1, parameters = 0, tokens_per_step = 0;
  double step_flops = 0, peak_flops = 0;  // of a step; a second
  double predicted_step_ms = 0, predicted_peak_bytes = 0;
  double began = 0;  // seconds since 1970
};

struct RunCurves {
  ThinCurve loss, validation, tokens_per_s, of_peak, step_ms, grad_norm, data_wait, peak_bytes;
};

// One step of those that were read last.
struct RecentStep {
  int64_t step = 0;
  double seconds = 0, tokens = 0, host_wait_ms = 0, at = MetricsLine::kNone;
};

struct RunTally {
  int64_t lines = 0, unreadable = 0, skipped = 0;
  double seconds = 0, tokens = 0, host_wait_ms = 0;
  double first_loss = MetricsLine::kNone, best_validation = MetricsLine::kNone;
  std::optional<MetricsLine> last, last_validation;
  double last_finite_loss = MetricsLine::kNone;
};

class RunReader {
 public:
  static constexpr std::size_t kRecent = 512;

  explicit RunReader(std::string folder);

  bool refresh();  // whether there was anything new
  const std::string& folder() const { return folder_; }
  const WatchedFacts& facts() const { return facts_; }
  const RunCurves& curves() const { return curves_; }
  const RunTally& tally() const { return tally_; }
  const std::deque<RecentStep>& recent() const { return recent_; }  // of the present process
  // Whether a process of this machine holds the folder's lock. Nothing where that cannot be told.
  std::optional<bool> is_held() const;
  double silent_seconds() const;  // since metrics.jsonl was written to last

 private:
  struct FileId {
    uint64_t device = 0, inode = 0;
    int64_t changed_ns = 0, size = 0;
    friend bool operator==(const FileId&, const FileId&) = default;
  };
  static std::optional<FileId> id_of(const std::string& path);
  bool refresh_facts();
  void restart();
  void take(std::string_view line);
  void take_step(const MetricsLine& m);

  std::string folder_;
  FileId facts_file_, metrics_file_;
  WatchedFacts facts_;
  RunCurves curves_;
  RunTally tally_;
  std::deque<RecentStep> recent_;
  int64_t offset_ = 0;     // of metrics.jsonl: what was read
  bool skipping_ = false;  // in the middle of a line that is too long to be one
};

}  // namespace kiln
