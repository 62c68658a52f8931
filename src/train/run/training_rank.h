// What one rank of a training run does, step by step; run() is the order. The first rank has the folder,
// prints and saves; the others only train.
#pragma once

#include <memory>
#include <optional>

#include "dist/launch/parallel_rank.h"
#include "train/inject/injector.h"
#include "train/replica_check.h"
#include "train/run/oom_snapshot.h"
#include "train/run/run_recorder.h"
#include "train/run/straggler_watch.h"
#include "train/run/train_ranks.h"

namespace kiln {

class TrainingRank {
 public:
  // All must outlive it.
  TrainingRank(const TrainRequest& request, RankContext& ctx, Communicator& comm, SharedDataset& share,
               TrainView& view, const std::atomic<bool>& stop);

  TrainOutcome run();

 private:
  TrainOutcome run_through();
  void inject_faults();                      // where --inject asks for them
  void watch_memory();                       // for what --oom-snapshot is to hold
  void share_out(const TrainingText& text);  // model and batch among the ranks
  void choose_prefetch();                    // of sharded weights, the same on all ranks
  void choose_what_fits();                   // where that was left to us; the same on all ranks
  void make_loader();
  void take_up();  // the checkpoint to resume, where there is one
  MemoryRequest memory_request() const;
  RankOptions planned_rank() const;
  std::size_t free_memory() const;  // of the device, for each rank on it
  void predict_memory_or_refuse();  // of the first rank
  void clean_folder();              // the same: it is this run's from here on
  TrainOutcome already_done() const;
  void choose_products();  // the same on all ranks
  void make_step();        // model and step, with the checkpoint's values or fresh ones
  CheckpointParts parts() const;
  RunOptions options();
  void add_hooks(RunOptions& options);
  SaveOptions save_options() const;
  void on_bad_step(const BadStep& bad);
  void report_injections();     // those that did not happen
  TrainOutcome train_beside();  // the first rank
  TrainOutcome train_and_speak();
  TrainOutcome run_steps(TrainLoop& run, RunRecorder& keeper, CheckpointManager& saver);
  // Else no rank has the model.
  bool samples() {
    return text_->tokenizer && request_.tensor_ranks == 1 && !place_->strategy().shards_params();
  }

  const TrainRequest& asked_;
  TrainRequest request_;  // with what was chosen
  RankContext& ctx_;
  Communicator& comm_;
  SharedDataset& share_;
  TrainView& view_;
  const std::atomic<bool>& stop_;
  const bool first_;
  StepOptions shape_;
  const Warn warn_;

  const TrainingText* text_ = nullptr;
  ModelConfig config_;
  StrategyOptions sharing_;
  std::optional<ParallelRank> place_;
  std::optional<BatchLoader> loader_;
  std::optional<RunFolder> folder_;   // the first rank's
  std::optional<std::string> found_;  // the checkpoint
  TrainState state_;
  ParamLayout layout_;
  MemoryStats memory_;
  std::optional<RunChoice> choice_;
  std::optional<TuneFile> tuning_;
  std::unique_ptr<Model> model_;
  std::optional<ReplicaCheck> replicas_;
  std::optional<StragglerWatch> stragglers_;
  std::optional<TraceHook> trace_;
  std::shared_ptr<Injector> injector_;  // null: nothing is injected
  std::optional<OomSnapshot> memory_watch_;
  std::unique_ptr<TrainStep> step_;
};

}  // namespace kiln
