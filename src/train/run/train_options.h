// The options of a training run, each declared once, and what they mean.
#pragma once

#include "base/options.h"
#include "dist/strategy/strategies.h"
#include "train/run/train.h"

namespace kiln {

// All of `kiln train`, in the order that --help shows. Another option is a field of TrainRequest and a line
// there: run.json, the config that a run keeps and check_request() take it from the declaration.
void add_train_options(Options& options, TrainRequest& request);

Precision precision_of(const TrainRequest& request);
std::string model_text(const TrainRequest& request);  // of --model or --size, as requested
ModelConfig model_of(const TrainRequest& request);    // with the vocabulary of its size or configuration
HfConfig hf_config_of(const TrainRequest& request);   // what a checkpoint says about itself besides its shape
int data_ranks_of(const TrainRequest& request);       // those that share the batch out
int chunks_of(const TrainRequest& request);           // of --canonical; 0 without it
int64_t save_every_of(const TrainRequest& request);
StepOptions step_of(const TrainRequest& request);  // of one rank
StrategyOptions strategy_of(const TrainRequest& request);
TextOptions text_of(const TrainRequest& request);
LrSchedule schedule_of(const TrainRequest& request);
RunOptions run_options_of(const TrainRequest& request);

}  // namespace kiln
