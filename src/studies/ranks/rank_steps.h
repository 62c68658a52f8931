// Training steps of several ranks, timed: what the studies of parallel strategies have in common.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dist/launch/parallel_rank.h"
#include "dist/launch/ranks.h"
#include "dist/strategy/bucket_observer.h"
#include "dist/strategy/gather_observer.h"
#include "dist/strategy/strategies.h"
#include "model/model_options.h"
#include "perf/comm/gather_ledger.h"
#include "perf/timing/timing.h"
#include "rows/row_status.h"
#include "studies/ranks/largest_rank.h"
#include "studies/step/synthetic_step.h"

namespace kiln {

// Of one rank, and how to watch its buckets, where it has any.
struct RankStrategy {
  std::unique_ptr<Strategy> strategy;  // null: that of `place`
  std::function<void(BucketObserver*)> observe = nullptr;
  std::function<void(GatherObserver*)> observe_gathers = nullptr;
  bool alone = false;  // ranks share nothing: `compute` is made of the timelines of all
  std::unique_ptr<ParallelRank> place = nullptr;  // of ranks that hold parts of a model

  Strategy& get() const { return strategy ? *strategy : place->strategy(); }
  const Partition& partition() const { return place ? place->partition() : whole_model(); }
};
using MakeRankStrategy = std::function<RankStrategy(RankContext&, Communicator&)>;

MakeRankStrategy compute_alone(DType wire);  // ranks that run concurrently and share nothing
MakeRankStrategy strategy_maker(const std::string& name, const StrategyOptions& options);
// Over groups of tensor-parallel ranks. Nothing is watched.
MakeRankStrategy mesh_maker(const std::string& name, const StrategyOptions& options, int tensor_ranks);

struct RanksTiming {
  bool here = false;               // in the process of the first rank, which reports
  Timing timing;                   // of the slowest rank, step by step
  OverlapLedger ledger;            // of the first rank, in the step whose slowest rank took the median
  double ledger_seconds = 0;       // of that step, the slowest rank
  std::vector<GatherUse> gathers;  // of the same step, where weights are gathered
  ComputeTimeline compute;         // of the same step of ranks that share nothing: the last of them
  MemorySnapshots memory;          // of the rank with the highest peak; `memory_rank` says which
  int memory_rank = 0;
  CommVolume volume;  // of the last step
  Cost executed;      // by the ops of the first step, on the first rank
  int op_calls = 0;   // likewise
  double loss = 0;    // of the last step
};

// The gate of such rows: whatever the strategy, the training is the same. Sets that of `row` by its last loss
// against the `first` one's. The first passes with the first that agrees with it: by itself it is compared
// with nothing.
struct JudgedRun {
  RowOutcome& row;
  const RanksTiming& run;
};
void compare_losses(JudgedRun judged, JudgedRun first, const std::string& first_name);

struct RanksPlan {
  int ranks = 1;
  RankOptions options;
  CommOptions comm;
};

// Of a launched process its own, else as many as are requested.
int study_ranks(int asked);
std::string study_transport(const std::string& asked);

struct RanksWork {
  RanksPlan plan;
  StepSpec spec;
  int warmups = 2, steps = 10;
  std::function<bool()> stop = nullptr;
  Ranks* processes = nullptr;  // that were started for the study; null: threads are started for each run
};

// What every study of several ranks is asked.
struct RanksStudy {
  NamedModel size;
  Precision precision = Precision::fp32;
  std::string preset = "optimized";
  std::string transport = "threads";
  std::optional<LinkModel> link;
  int64_t batch = 1, context = 128;
  std::optional<int64_t> total_batch;  // where `batch` is of each rank: instead, and divided among the ranks
  int micro_steps = 1;
  int warmups = 2, steps = 5;
  Device device;
  int threads = 0;             // of each rank
  bool oversubscribe = false;  // more than kMostRanksPerCore ranks to a core are meant
  uint64_t seed = 0;
  std::string folder = {};  // of what the gate has found right already; empty: none
  std::function<bool()> stop = nullptr;
};
// Ranks are threads that a study starts, or the processes that were started for it. Error(usage) where the
// transport or the number of ranks is another than theirs, or threads are too many for this machine.
void check_study_ranks(const RanksStudy& study, int ranks);
RanksWork work_of(const RanksStudy& study, int ranks, int64_t batch_of_a_rank);
// Of studies with several numbers of ranks, whose `batch` is of each. Error(usage) where the total does not
// divide.
int64_t batch_of_rank(const RanksStudy& study, int ranks);
std::string batch_text(const RanksStudy& study);  // "batch 8", "batch 1 on each rank"

// The processes that were started for a study; null where it starts threads. finish() them at the end.
std::unique_ptr<Ranks> launched_ranks(const std::string& config);

// All ranks start each step at a barrier. Memory and volume are known without timed steps too.
RanksTiming time_ranks(const RanksWork& work, const MakeRankStrategy& make);

// What a rank runs, by itself, against its definition: before anything is timed, on each process. Throws
// where it computes something else, naming the op.
void check_rank_step(const RanksWork& work, const std::string& folder,
                     const std::function<void(const std::string&)>& progress);

// Another round of the same: samples of both, and the ledger of the one that is closer to their median.
void add_round(RanksTiming& all, RanksTiming round);

// The same step on meta: memory and volume of a run too large for this machine. `uneven`: shards are as
// uneven as the weights, and all ranks are planned to find the one that needs most; else none needs more than
// the first.
RanksTiming plan_ranks(const RanksWork& work, const MakeRankStrategy& make, bool uneven = false);

// Throws Error where the machine has not the memory that this step takes on its ranks, before any rank
// starts.
void check_ranks_fit(const RanksWork& work, const MakeRankStrategy& make);

// Threads of each rank: those requested, or a part of the machine.
int threads_per_rank(int asked, int ranks);

}  // namespace kiln
