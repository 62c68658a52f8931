// Training steps of several ranks, timed: what the studies of parallel strategies have in common.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dist/strategy/bucket_observer.h"
#include "dist/strategy/gather_observer.h"
#include "dist/launch/ranks.h"
#include "dist/strategy/strategies.h"
#include "model/size_registry.h"
#include "perf/comm/gather_ledger.h"
#include "studies/step/synthetic_step.h"
#include "perf/timing/timing.h"

namespace kiln::cli {

// Of one rank, and how to watch its buckets, where it has any.
struct RankStrategy {
  std::unique_ptr<Strategy> strategy;
  std::function<void(BucketObserver*)> observe = nullptr;
  std::function<void(GatherObserver*)> observe_gathers = nullptr;
  bool alone = false;  // ranks share nothing: `compute` is made of the timelines of all
};
using MakeRankStrategy = std::function<RankStrategy(RankContext&, Communicator&)>;

MakeRankStrategy compute_alone(DType wire);  // ranks beside each other that share nothing
MakeRankStrategy strategy_maker(const std::string& name, const StrategyOptions& options);

// Peaks so far and bytes in use, at three moments of a rank's life.
struct MemoryMoments {
  MemoryStats after_init;   // weights, gradients and moments are there
  MemoryStats before_step;  // of the last warm-up: gradients are complete, the update begins
  MemoryStats after_step;
};

struct RanksTiming {
  bool here = false;               // in the process of the first rank, which tells
  Timing timing;                   // of the slowest rank, step by step
  OverlapLedger ledger;            // of the first rank, in the step whose slowest rank took the median
  double ledger_seconds = 0;       // of that step, the slowest rank
  std::vector<GatherUse> gathers;  // of the same step, where weights are gathered
  ComputeTimeline compute;         // of the same step of ranks that share nothing: the last of them
  MemoryMoments memory;            // of the first rank
  CommVolume volume;               // of the last step
  double loss = 0;                 // of the last step
};

// The gate of such rows: whatever the strategy, the training is the same. Why `run` fails it beside `first`;
// empty: it does not.
std::string wrong_loss(const RanksTiming& run, const RanksTiming& first, const std::string& first_name);

struct RanksPlan {
  int ranks = 1;
  RankOptions options;
  CommOptions comm;
};

// Ranks are threads that a study starts, or the processes that were started for it. Error(usage) where
// `transport` or the number of ranks is another than theirs.
void check_study_ranks(const std::string& transport, int ranks);
// Of a launched process its own, else as many as are asked for.
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
  ModelSize size{};
  Precision precision = Precision::fp32;
  std::string preset = "optimized";
  std::string transport = "threads";
  std::optional<LinkModel> link;
  int64_t batch = 1, context = 128;
  int warmups = 2, steps = 5;
  Device device;
  int threads = 0;  // of each rank
  uint64_t seed = 0;
  std::function<bool()> stop = nullptr;
};
RanksWork work_of(const RanksStudy& study, int ranks, int64_t batch_of_a_rank);

// The processes that were started for a study; null where it starts threads. finish() them at the end.
std::unique_ptr<Ranks> launched_ranks(const std::string& config);

// All ranks begin each step together. Memory and volume are known without timed steps too.
RanksTiming time_ranks(const RanksWork& work, const MakeRankStrategy& make);

// Another round of the same: samples of both, and the ledger of the one that is closer to their median.
void add_round(RanksTiming& all, RanksTiming round);

// The same step on meta, as the first of so many ranks: memory and volume of a run nobody has the room for.
RanksTiming plan_ranks(const RanksWork& work, const MakeRankStrategy& make);

// Threads of each rank: those asked for, or a part of the machine.
int threads_per_rank(int asked, int ranks);

}  // namespace kiln::cli
