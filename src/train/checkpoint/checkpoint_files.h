// The parts of a checkpoint that do not depend on who writes it: which tensors are in which file and where,
// the texts next to them, and how the folder gets its name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/safetensors_writer.h"
#include "model/hf_save.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/manifest.h"

namespace kiln {

// config.json of the model as it is saved: fp32.
HfConfig saved_config(const CheckpointParts& parts);

// Of one save: what is there besides tensors. Nothing in it changes while training continues.
struct SaveTexts {
  const RunFolder* run;  // of the first rank
  HfConfig config;
  const Tokenizer* tokenizer;
  TrainState state;
  int keep;

  std::string folder() const;     // its final name
  std::string temporary() const;  // and the one until then
};
SaveTexts save_texts(const RunFolder* run, const CheckpointParts& parts, const TrainState& state, int keep);

// A file of tensors, to the byte, before any is written.
struct TensorFile {
  std::string name;
  std::string front;  // all that is before the tensors
  std::vector<SafetensorsDeclaration> tensors;
  std::vector<uint64_t> begins;  // of each, bytes of the file
  uint64_t bytes = 0;            // of the file
};

// Of one state of the optimizer, the name each weight's part has in the file.
inline std::string state_name(const OptimizerState& state, std::string_view weight) {
  return cat(state.name, ".", weight);
}
std::vector<SafetensorsDeclaration> state_declarations(const Optimizer& optimizer,
                                                       const std::vector<WeightSpec>& weights);
// The weights', then the optimizer's.
std::vector<TensorFile> tensor_files(const HfConfig& config, const Optimizer& optimizer);

// Tokenizer, state and manifest; config.json is there already. `files` are those of the tensors.
void write_texts(const SaveTexts& save, std::vector<ManifestFile> files);

// Under its final name, and on disk as that.
void publish(const SaveTexts& save);

}  // namespace kiln
