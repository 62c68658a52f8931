// Saves a run periodically, and survives failed saves: a full disk must not cost the work in memory.
// The error is reported at once and remembered; at the end, a run whose last save failed has failed.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/file_watch.h"
#include "train/checkpoint/checkpoint.h"

namespace kiln {

struct SaveOptions {
  int keep = 3;                // checkpoints; the older ones are removed
  bool stop_on_error = false;  // throw instead of continuing
  FileWatch* watch = nullptr;  // of the files it writes
};

class CheckpointManager {
 public:
  CheckpointManager(const RunFolder& run, const CheckpointParts& parts, const SaveOptions& options, Warn warn)
      : CheckpointManager(&run, parts, options, std::move(warn)) {}
  // Of a run of several ranks, all but the first bring no folder; saving is collective.
  CheckpointManager(const RunFolder* run, const CheckpointParts& parts, const SaveOptions& options, Warn warn)
      : run_(run), parts_(parts), options_(options), warn_(std::move(warn)) {}

  // `last_good` is what there is before the first save.
  void start_from(std::string last_good) { last_good_ = std::move(last_good); }
  void save(const TrainState& state);

  const std::string& last_good() const { return last_good_; }   // empty: none yet
  const std::optional<Error>& error() const { return error_; }  // of the last save

 private:
  const RunFolder* run_;
  CheckpointParts parts_;
  SaveOptions options_;
  Warn warn_;
  std::string last_good_;
  std::optional<Error> error_;
};

}  // namespace kiln
