#include "train/run/train.h"

#include "train/run/run_metrics.h"
#include "train/run/train_options.h"
#include "train/run/train_ranks.h"
#include "train/run/training_rank.h"

namespace kiln {

TrainOutcome train(const TrainRequest& r, TrainView& view, const std::atomic<bool>& stop) {
  check_request(r);
  SharedDataset share;
  TrainOutcome outcome;
  const LoadWatch load(r.device);
  run_ranks(ranks_of(r), rank_options_of(r, r.ranks), [&](RankContext& ctx, Communicator& comm) {
    TrainView nobody;
    const bool first = comm.rank() == 0;
    TrainOutcome mine = TrainingRank(r, ctx, comm, share, first ? view : nobody, stop).run();
    if (!first) return;
    outcome = std::move(mine);
    outcome.transport = comm.transport();
  });
  outcome.load = load.load();
  outcome.metrics = RunMetrics::path_in(r.run);
  return outcome;
}

}  // namespace kiln
