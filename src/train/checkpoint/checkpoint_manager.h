// Saves a run periodically, and survives failed saves: a full disk must not cost the work in memory.
// The error is reported at once and remembered; at the end, a run whose last save failed has failed.
//
// Asynchronously, save() copies the state into host memory and returns; a thread writes the copy while
// training changes the original. Ranks ask each other between steps whether all are done, so a checkpoint is
// published a step or more after the one it holds. One save is under way at a time: the next waits for it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/background_task.h"
#include "base/error.h"
#include "base/file_watch.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/pending_save.h"

namespace kiln {

struct SaveOptions {
  int keep = 3;                // checkpoints; the older ones are removed
  bool stop_on_error = false;  // throw instead of continuing
  FileWatch* watch = nullptr;  // of the files it writes
  bool async = false;
};

class CheckpointManager {
 public:
  CheckpointManager(const RunFolder& run, const CheckpointParts& parts, const SaveOptions& options, Warn warn)
      : CheckpointManager(&run, parts, options, std::move(warn)) {}
  // Of a run of several ranks, all but the first bring no folder; saving is collective, and so are poll() and
  // finish().
  CheckpointManager(const RunFolder* run, const CheckpointParts& parts, const SaveOptions& options,
                    Warn warn);
  ~CheckpointManager() { abandon(); }
  CheckpointManager(const CheckpointManager&) = delete;
  CheckpointManager& operator=(const CheckpointManager&) = delete;

  // `last_good` is what there is before the first save.
  void start_from(std::string last_good) { last_good_ = std::move(last_good); }
  void on_saved(std::function<void(int64_t step, const std::string& checkpoint)> f) { saved_ = std::move(f); }
  void save(const TrainState& state);

  // After a step, by all ranks: a save that is over is told of.
  void poll(int64_t step);
  void finish();            // waits for the one under way
  void abandon() noexcept;  // the same where ranks may be gone; a lone rank's save still counts

  const std::string& last_good() const { return last_good_; }   // empty: none yet
  const std::optional<Error>& error() const { return error_; }  // of the last save
  std::size_t staged_bytes() const { return staging_ ? staging_->bytes() : 0; }

 private:
  enum class Stage { none, writing, publishing };

  void save_now(const TrainState& state);
  void start(const TrainState& state);
  void begin_stage(Stage stage);
  bool over_everywhere();
  void advance(bool wait);
  void together(const char* what, const std::function<void()>& work);
  void fail(const Error& error);
  void tell();  // what the thread had to warn of

  const RunFolder* run_;
  CheckpointParts parts_;
  SaveOptions options_;
  Warn warn_;
  std::function<void(int64_t, const std::string&)> saved_;
  std::string last_good_;
  std::optional<Error> error_;

  std::optional<StagingMemory> staging_;  // of asynchronous saves
  std::unique_ptr<PendingSave> pending_;
  int64_t pending_step_ = 0;
  Stage stage_ = Stage::none;
  std::vector<std::string> warnings_;  // the thread's while one runs
  BackgroundTask task_;                // last: it uses the others
};

}  // namespace kiln
