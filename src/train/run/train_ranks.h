// What the ranks of a training run share and agree on.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "dist/launch/ranks.h"
#include "train/run/train.h"
#include "tune/tune_file.h"

namespace kiln {

// Of the ranks that are threads of one process.
class SharedDataset {
 public:
  // Read once, by the first rank that comes; the others wait.
  const TrainingText& text(const TrainRequest& request, ThreadPool& pool);

 private:
  std::mutex mutex_;
  std::optional<TrainingText> text_;
};

// The ranks the run has. Where they were started already, by `kiln run` or mpirun, those: --ranks and
// --transport may say so again, and are an Error(usage) if they say otherwise.
RanksRequest ranks_of(const TrainRequest& request);
// Fills in --ranks where it was not given.
void take_launched_ranks(TrainRequest& request, bool given);

// As each rank of `ranks` is made, up to its number.
RankOptions rank_options_of(const TrainRequest& request, int ranks);

bool any_rank(RankContext& ctx, Communicator& comm, bool mine);  // does any say yes?

// The checkpoint the first rank has found, as a path for all of them.
std::optional<std::string> same_checkpoint(RankContext& ctx, Communicator& comm, const std::string& run,
                                           const std::optional<std::string>& found);

// The first rank's, on all of them.
std::string same_text(RankContext& ctx, Communicator& comm, std::string text, const char* what);

// The GEMM choices of the first rank: all must compute with the same. Those that hold for
// another GPU than this rank's are none.
std::optional<TuneFile> same_tuning(RankContext& ctx, Communicator& comm,
                                    const std::optional<TuneFile>& first,
                                    const std::optional<TunePlace>& here);

// For RunOptions::agree_to_stop of a run that has `done` so many steps. A device that works ahead of the host
// is polled only occasionally, since the answer takes a wait. Each time the launcher is notified which
// step comes next.
std::function<bool(bool)> agreement(RankContext& ctx, Communicator& comm, int64_t done);

}  // namespace kiln
