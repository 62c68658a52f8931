// Checkpoints: everything a run needs to resume bit for bit, in one folder that appears whole or not at all.
//
//   RUN/checkpoints/step-00000040/
//     config.json, *.safetensors, tokenizer.json
//                              a Hugging Face model; weights are the fp32 masters
//     optimizer.safetensors    the optimizer's state: "m.<weight>" and "v.<weight>" of AdamW
//     state.json               train/checkpoint/train_state.h
//     manifest.json            train/checkpoint/manifest.h; written last
//   RUN/checkpoints/latest     the name of the newest, for other programs
//
// A save fills step-N.tmp.<generation>, forces every file to disk, and renames. Whenever the process is
// killed, the folder before or the folder after exists; leftovers are removed when the
// run is resumed. Weights and state are streamed: no second copy of the model is made.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "data/tokenizer.h"
#include "dist/comm/communicator.h"
#include "model/hf_config.h"
#include "model/model.h"
#include "optim/optimizer.h"
#include "train/checkpoint/train_state.h"
#include "train/run/run_folder.h"

namespace kiln {

// What is saved or loaded besides the state.
struct CheckpointParts {
  RankContext& ctx;
  Model& model;
  const Optimizer& optimizer;
  const Tokenizer* tokenizer;    // may be null
  HfConfig config;               // for config.json; the model's own shape goes over what it says
  Communicator* comm = nullptr;  // of a run of several ranks
};

using Warn = std::function<void(const std::string& line)>;

// Returns the new folder, and retires old ones. Throws Error and leaves no trace of the attempt when it
// cannot be written.
std::string save_checkpoint(const RunFolder& run, const CheckpointParts& parts, const TrainState& state,
                            int keep, const Warn& warn);

// Collective over all ranks of parts.comm: the same files, to the byte, whatever strategy and number of
// ranks the state is spread over. Each rank writes what it has of each tensor into its place; what several
// have is written by one of them. No tensor is gathered. The first rank brings the run's folder, the others
// null; all see the same file system. Where a rank cannot write, all throw.
std::string save_checkpoint_of_ranks(const RunFolder* run, const CheckpointParts& parts,
                                     const TrainState& state, int keep, const Warn& warn);

// The newest checkpoint of which every byte is as it was written; about each newer one that is not, it warns
// with the reason. Empty when there is none at all; Error when there are some and none is good.
std::optional<std::string> newest_checkpoint(const std::string& checkpoints, const Warn& warn);

// Writes `latest`, and removes all but the last `keep` up to `newest`, which must be a good one: so one
// always stays. Where any of it fails, it warns: the checkpoint itself is safe.
void retire_checkpoints(const RunFolder& run, int64_t newest, int keep, const Warn& warn);

// Before a run resumes from `step` (0: from the beginning): clears away what a killed save left, and renames
// later checkpoints, which are the broken ones, to step-N.bad, so that they are neither counted nor resumed.
void clear_leftovers(const RunFolder& run, int64_t step);

TrainState read_train_state(const std::string& checkpoint);

// Error, naming both values, when the model or what the run is known by are others than those of the
// checkpoint; before anything is allocated.
void check_same_run(const std::string& checkpoint, const ModelConfig& model, const RunIdentity& identity);

// Weights and optimizer state into a materialized model and its optimizer: of a rank that has parts of them,
// those. No word between ranks is needed.
void load_checkpoint(const std::string& checkpoint, const CheckpointParts& parts);

}  // namespace kiln
