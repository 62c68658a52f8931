#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/atomic_file.h"
#include "base/on_exit.h"
#include "base/safetensors_writer.h"
#include "data/load_tokenizer.h"
#include "model/hf_save.h"
#include "train/checkpoint.h"
#include "train/checkpoint_names.h"
#include "train/manifest.h"
#include "train/moment_values.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

HfConfig config_of(const CheckpointParts& parts) {
  HfConfig c = parts.config;
  c.model = parts.model.config();
  c.dtype = DType::f32;
  if (parts.tokenizer && c.eos.empty()) {
    if (const auto end = parts.tokenizer->specials().end_of_text()) c.eos = {*end};
  }
  return c;
}

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

ManifestFile save_moments(const std::string& folder, const CheckpointParts& parts) {
  const std::vector<WeightSpec> weights = weight_specs(parts.model.config());
  const std::pair<const char*, Moment> kinds[] = {{"m.", Moment::first}, {"v.", Moment::second}};
  std::vector<SafetensorsDeclaration> declared;
  std::vector<ManifestTensor> tensors;
  for (const auto& [prefix, which] : kinds) {
    for (const WeightSpec& w : weights) {
      declared.push_back({prefix + w.name, SafetensorsType::f32, {}});
      for (int i = 0; i < w.shape.rank(); ++i)
        declared.back().shape.push_back(static_cast<uint64_t>(w.shape[i]));
      tensors.push_back({declared.back().name, declared.back().bytes(), 0});
    }
  }
  SafetensorsWriter writer((fs::path(folder) / kOptimizerFile).string(), std::move(declared));
  std::vector<float> piece;
  for (const auto& [prefix, which] : kinds) {
    MomentValues values(parts.ctx, parts.model.params(), parts.optimizer, which);
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
  Manifest manifest{state.step(), run.generation(), {}};
  ParamValues weights(parts.ctx, parts.model.params());
  manifest.files = describe_weights(folder, save_hf_folder(folder, config_of(parts), weights));
  manifest.files.push_back(save_moments(folder, parts));
  if (parts.tokenizer) save_tokenizer(*parts.tokenizer, folder);
  write_file_atomically((fs::path(folder) / kStateFile).string(), train_state_json(state));
  for (const char* name : {"model.safetensors.index.json", "config.json", "tokenizer.json", kStateFile}) {
    if (fs::exists(fs::path(folder) / name)) manifest.files.push_back(describe_file(folder, name));
  }
  write_file_atomically((fs::path(folder) / Manifest::kName).string(), manifest_text(manifest));
}

// Under its final name, and on the disk as that.
void publish(const RunFolder& run, const std::string& temporary, const std::string& final_name) {
  run.check_still_held();
  if (::rename(temporary.c_str(), final_name.c_str()) != 0)
    throw Error(cat("cannot rename ", temporary, " to ", final_name, ": ", std::strerror(errno)));
  // The second: it may be new itself.
  if (!sync_folder_of(final_name) || !sync_folder_of(run.checkpoints())) {
    const int why = errno;
    (void)std::rename(final_name.c_str(),
                      temporary.c_str());  // it may or may not be on the disk: it is not there
    throw Error(cat("cannot force to the disk the folder of ", final_name, ": ", std::strerror(why)));
  }
}

}  // namespace

std::string save_checkpoint(const RunFolder& run, const CheckpointParts& parts, const TrainState& state,
                            int keep, const Warn& warn) {
  const std::string folder = (fs::path(run.checkpoints()) / checkpoint_name(state.step())).string();
  const std::string temporary = cat(folder, ".tmp.", run.generation());
  const OnExit leave([&] {  // after the rename there is nothing left to remove
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
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
