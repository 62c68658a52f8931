#include <filesystem>
#include <map>

#include "base/folder.h"
#include "base/on_exit.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/checkpoint/checkpoint_names.h"
#include "train/checkpoint/optimizer_values.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

// Shards as they were written, each with its tensors in order.
std::vector<ManifestFile> describe_weights(const std::string& folder, const std::vector<SavedTensor>& saved) {
  std::vector<std::string> names;
  std::map<std::string, std::vector<ManifestTensor>> tensors;
  for (const SavedTensor& t : saved) {
    if (names.empty() || names.back() != t.file) names.push_back(t.file);
    tensors[t.file].push_back({t.name, t.bytes, t.crc32c});
  }
  std::vector<ManifestFile> files;
  files.reserve(names.size());
  for (const std::string& name : names)
    files.push_back(describe_file(folder, name, std::move(tensors[name])));
  return files;
}

ManifestFile save_optimizer(const std::string& folder, const CheckpointParts& parts) {
  const std::vector<WeightSpec> weights = weight_specs(parts.model.config());
  std::vector<SafetensorsDeclaration> declared = state_declarations(parts.optimizer, weights);
  std::vector<ManifestTensor> tensors;
  tensors.reserve(declared.size());
  for (const SafetensorsDeclaration& t : declared) tensors.push_back({t.name, t.bytes(), 0});
  SafetensorsWriter writer((fs::path(folder) / kOptimizerFile).string(), std::move(declared));
  std::vector<float> piece;
  for (const OptimizerState& state : parts.optimizer.state()) {
    OptimizerValues values(parts.ctx, parts.model.params(), parts.optimizer, state);
    for (const WeightSpec& w : weights) {
      for_each_piece(w, 1, [&](int64_t row, int64_t rows) {
        piece.resize(static_cast<std::size_t>(rows * w.columns()));
        values.read(w, row, piece);
        writer.append(std::as_bytes(std::span(piece)));
      });
    }
  }
  const std::vector<uint32_t> checksums = writer.commit();
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].crc32c = checksums[i];
  return describe_file(folder, kOptimizerFile, std::move(tensors));
}

void fill(const std::string& folder, const RunFolder& run, const CheckpointParts& parts,
          const TrainState& state) {
  ParamValues weights(parts.ctx, parts.model.params());
  std::vector<ManifestFile> files =
      describe_weights(folder, save_hf_folder(folder, saved_config(parts), weights));
  files.push_back(save_optimizer(folder, parts));
  write_texts(folder, run, parts, state, std::move(files));
}

}  // namespace

std::string save_checkpoint(const RunFolder& run, const CheckpointParts& parts, const TrainState& state,
                            int keep, const Warn& warn) {
  const std::string folder = (fs::path(run.checkpoints()) / checkpoint_name(state.step())).string();
  const std::string temporary = cat(folder, ".tmp.", run.generation());
  const OnExit leave([&] {  // after the rename there is nothing left to remove
    remove_tree(temporary);
  });
  try {
    fs::create_directories(temporary);
    fill(temporary, run, parts, state);
    publish(run, temporary, folder);
  } catch (const fs::filesystem_error& e) {
    throw Error(cat("cannot write ", temporary, ": ", e.code().message()));
  }
  retire_checkpoints(run, state.step(), keep, warn);
  return folder;
}

}  // namespace kiln
