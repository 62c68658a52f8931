#include "train/checkpoint/checkpoint_manager.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "dist/launch/rank_agreement.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kNoMemory = "out of memory on the host while saving";

// On a GPU the ranks' question waits for the step it is asked after.
int64_t steps_between_polls(const RankContext& ctx) { return ctx.device().type == DeviceType::cuda ? 8 : 1; }

}  // namespace

CheckpointManager::CheckpointManager(const RunFolder* run, const CheckpointParts& parts,
                                     const SaveOptions& options, Warn warn)
    : run_(run), parts_(parts), options_(options), warn_(std::move(warn)) {
  if (options.async) staging_.emplace(parts_);
}

void CheckpointManager::save(const TrainState& state) {
  if (!options_.async) return save_now(state);
  if (stage_ != Stage::none) {
    const int64_t before = pending_step_;
    const Clock::time_point begin = Clock::now();
    finish();
    if (warn_)
      warn_(cat("the save of step ", state.step(), " waited ",
                std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count(),
                " ms for that of step ", before, ": --save-every is shorter than a save"));
  }
  start(state);
}

void CheckpointManager::save_now(const TrainState& state) {
  const FileWatchGuard watched(options_.watch);
  if (options_.watch != nullptr) options_.watch->begin_save(state.step());
  pending_step_ = state.step();
  try {
    last_good_ = parts_.comm != nullptr ? save_checkpoint_of_ranks(run_, parts_, state, options_.keep, warn_)
                                        : save_checkpoint(*run_, parts_, state, options_.keep, warn_);
    error_.reset();
  } catch (const Error& e) {
    return fail(e);
  } catch (const std::bad_alloc&) {
    if (parts_.comm != nullptr)
      throw;  // the other ranks are in the middle of the save, and wait for this one
    return fail(Error(kNoMemory));
  }
  if (saved_) saved_(pending_step_, last_good_);
}

void CheckpointManager::start(const TrainState& state) {
  pending_step_ = state.step();
  try {
    SaveSources copy;
    together("checkpoint copy", [&] { copy = staging_->copy(parts_); });
    pending_ = begin_save(run_, parts_, std::move(copy), state, options_.keep);
    begin_stage(Stage::writing);
  } catch (const Error& e) {
    fail(e);
  } catch (const std::bad_alloc&) {
    if (parts_.comm != nullptr) throw;
    fail(Error(kNoMemory));
  }
}

void CheckpointManager::poll(int64_t step) {
  if (stage_ == Stage::none) return;
  if (parts_.comm == nullptr ? task_.over() : step % steps_between_polls(parts_.ctx) == 0) advance(false);
}

void CheckpointManager::finish() {
  while (stage_ != Stage::none) advance(true);
}

void CheckpointManager::abandon() noexcept {
  task_.wait();
  if (stage_ == Stage::none) return;
  if (parts_.comm == nullptr) {
    try {
      task_.take();
      last_good_ = pending_->folder();
    } catch (...) {  // it was not saved, and something else is being reported
      stage_ = Stage::none;
    }
  }
  stage_ = Stage::none;
  pending_.reset();
}

// On all ranks, or on none.
void CheckpointManager::together(const char* what, const std::function<void()>& work) {
  if (parts_.comm == nullptr) return work();
  all_or_throw(parts_.ctx, *parts_.comm, what, work);
}

// A rank that has nothing to do in a stage is over at once.
void CheckpointManager::begin_stage(Stage stage) {
  stage_ = stage;
  const bool writes = stage == Stage::writing;
  const bool publishes = run_ != nullptr && (stage == Stage::publishing || parts_.comm == nullptr);
  if (!writes && !publishes) return;
  task_.start("the save", [this, writes, publishes] {
    const FileWatchGuard watched(options_.watch);
    if (options_.watch != nullptr) options_.watch->begin_save(pending_step_);
    try {
      if (writes) pending_->write();
      if (publishes) pending_->publish([this](const std::string& line) { warnings_.push_back(line); });
    } catch (const std::bad_alloc&) {
      throw Error(kNoMemory);
    }
  });
}

bool CheckpointManager::over_everywhere() {
  if (parts_.comm == nullptr) return task_.over();
  const double left = task_.over() ? 0 : 1;
  const auto all = all_gather_numbers(parts_.ctx, *parts_.comm, {&left, 1}, "whether the save is over");
  return std::all_of(all.begin(), all.end(), [](const std::vector<double>& rank) { return rank.at(0) == 0; });
}

// From this stage to the next, where all ranks are through with it.
void CheckpointManager::advance(bool wait) {
  if (wait) task_.wait();
  if (!over_everywhere()) return;
  try {
    together(stage_ == Stage::writing ? "checkpoint write" : "checkpoint end", [this] { task_.take(); });
    if (stage_ == Stage::writing && parts_.comm != nullptr) {
      pending_->share();
      return begin_stage(Stage::publishing);
    }
  } catch (const Error& e) {
    return fail(e);
  }
  stage_ = Stage::none;
  last_good_ = pending_->folder();
  error_.reset();
  pending_.reset();
  tell();
  if (saved_) saved_(pending_step_, last_good_);
}

void CheckpointManager::tell() {
  for (const std::string& line : warnings_) {
    if (warn_) warn_(line);
  }
  warnings_.clear();
}

void CheckpointManager::fail(const Error& error) {
  stage_ = Stage::none;
  pending_.reset();
  tell();
  error_ = error;
  if (options_.stop_on_error) throw Error(error);
  if (warn_)
    warn_(cat("STEP ", pending_step_, " WAS NOT SAVED: ", error.what(), ". Training continues; ",
              last_good_.empty() ? std::string("there is no checkpoint yet")
                                 : cat("the last good checkpoint is ", last_good_)));
}

}  // namespace kiln
