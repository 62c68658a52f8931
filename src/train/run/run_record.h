// A run's options as its folder records them: run.json, for people and for the warnings of a resumed
// run, and run_config.json, which --config takes again.
#pragma once

#include <string>
#include <vector>

#include "train/run/train.h"

namespace kiln {

// The run's options as one line of JSON: the same on every rank, or they are not of one run.
std::string options_text(const TrainRequest& request);

// run.json: the request with all defaults filled in, and what it became.
std::string run_record(const TrainRequest& request, const TrainSetup& setup, uint64_t generation);

// The request as a run config: `kiln train --config FILE` asks for the same run.
std::string run_config(const TrainRequest& request);

// When the run began, by its run.json; 0 where that does not say.
double began_of(const std::string& record);

// "lr was 0.001, is 0.0003": what differs between an earlier run.json and this one, among the options.
std::vector<std::string> changed_options(const std::string& before, const std::string& now);

}  // namespace kiln
