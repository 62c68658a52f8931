// A run's description before its first step: for the view, and in run.json.
#pragma once

#include "train/run/run_folder.h"
#include "train/run/train.h"

namespace kiln {

// `ctx` is the first rank's; measures the GEMM rate there.
TrainSetup describe_setup(const TrainRequest& request, RankContext& ctx, const Model& model,
                          const MemoryStats& predicted, const TrainingText& text);

double seconds_since_1970();

// run.json of this part in place of the one before, whatever changed said aloud. Fills in when the run began.
void record_setup(const RunFolder& run, const TrainRequest& request, TrainSetup& setup, TrainView& view);

}  // namespace kiln
