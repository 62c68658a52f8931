#include "train/checkpoint/checkpoint_manager.h"

#include <new>

namespace kiln {

void CheckpointManager::save(const TrainState& state) {
  const FileWatchGuard watched(options_.watch);
  try {
    last_good_ = parts_.comm != nullptr ? save_checkpoint_of_ranks(run_, parts_, state, options_.keep, warn_)
                                        : save_checkpoint(*run_, parts_, state, options_.keep, warn_);
    error_.reset();
  } catch (const Error& e) {
    error_ = e;
  } catch (const std::bad_alloc&) {
    if (parts_.comm != nullptr)
      throw;  // the other ranks are in the middle of the save, and wait for this one
    error_ = Error("out of memory on the host while saving");
  }
  if (!error_) return;
  if (options_.stop_on_error) throw Error(*error_);
  if (warn_)
    warn_(cat("STEP ", state.step(), " WAS NOT SAVED: ", error_->what(), ". Training continues; ",
              last_good_.empty() ? std::string("there is no checkpoint yet")
                                 : cat("the last good checkpoint is ", last_good_)));
}

}  // namespace kiln
