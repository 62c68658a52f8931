// A save in its phases, so that what must not be disturbed by training and what need not wait for it can be
// on different threads:
//
//   made        on the training thread, of several ranks collectively: what is written where, by whom
//   write       any thread; reads the sources, and nothing that a step changes
//   share       collective: checksums of the ranks' pieces
//   publish     any thread of the first rank: texts, the manifest, the final name, old checkpoints
//
// One that is not published leaves nothing behind.
#pragma once

#include <memory>

#include "train/checkpoint/checkpoint_files.h"
#include "train/checkpoint/save_sources.h"

namespace kiln {

class PendingSave {
 public:
  virtual ~PendingSave() = default;
  virtual void write() = 0;
  virtual void share() = 0;
  virtual void publish(const Warn& warn) = 0;
  virtual const std::string& folder() const = 0;  // its final name
};

// Of one rank, or of all ranks of parts.comm: then collective, and `run` is null on all but the first.
std::unique_ptr<PendingSave> begin_save(const RunFolder* run, const CheckpointParts& parts,
                                        SaveSources sources, const TrainState& state, int keep);

// Their files: checkpoint_save.cpp and checkpoint_save_ranks.cpp.
std::unique_ptr<PendingSave> begin_save_of_one(const RunFolder& run, const CheckpointParts& parts,
                                               SaveSources sources, const TrainState& state, int keep);
std::unique_ptr<PendingSave> begin_save_of_ranks(const RunFolder* run, const CheckpointParts& parts,
                                                 SaveSources sources, const TrainState& state, int keep);

}  // namespace kiln
