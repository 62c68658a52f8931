// What the words and numbers of a TrainRequest mean.
#pragma once

#include "dist/strategy/strategies.h"
#include "train/run/train.h"

namespace kiln::cli {

Precision precision_of(const TrainRequest& request);
ModelConfig model_of(const TrainRequest& request);   // with the vocabulary of its size or configuration
HfConfig hf_config_of(const TrainRequest& request);  // what a checkpoint says about itself besides its shape
int data_ranks_of(const TrainRequest& request);      // those that share the batch out
int chunks_of(const TrainRequest& request);          // of --canonical; 0 without it
StepOptions step_of(const TrainRequest& request);    // of one rank
StrategyOptions strategy_of(const TrainRequest& request);
TextOptions text_of(const TrainRequest& request);
LrSchedule schedule_of(const TrainRequest& request);
RunOptions run_options_of(const TrainRequest& request);

// The request with all defaults filled in, as it is kept in run.json.
// What the run was asked for, as one line of JSON: the same on every rank, or they are not of one run.
std::string options_text(const TrainRequest& request);
std::string run_record(const TrainRequest& request, const TrainSetup& setup, uint64_t generation);

// "lr was 0.001, is 0.0003": what differs between an earlier run.json and this one, of what was asked for.
std::vector<std::string> changed_options(const std::string& before, const std::string& now);

}  // namespace kiln::cli
