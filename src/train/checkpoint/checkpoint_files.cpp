#include "train/checkpoint/checkpoint_files.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/file_watch.h"
#include "data/load_tokenizer.h"
#include "model/hf_index.h"
#include "train/checkpoint/checkpoint_names.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

TensorFile planned(std::string name, std::vector<SafetensorsDeclaration> tensors,
                   const std::vector<std::pair<std::string, std::string>>& metadata) {
  TensorFile f;
  f.front = safetensors_front(name, tensors, metadata);
  f.name = std::move(name);
  f.bytes = f.front.size();
  for (const SafetensorsDeclaration& t : tensors) {
    f.begins.push_back(f.bytes);
    f.bytes += t.bytes();
  }
  f.tensors = std::move(tensors);
  return f;
}

}  // namespace

HfConfig saved_config(const CheckpointParts& parts) {
  HfConfig c = parts.config;
  c.model = parts.model.config();
  c.dtype = DType::f32;
  if (parts.tokenizer && c.eos.empty()) {
    if (const auto end = parts.tokenizer->specials().end_of_text()) c.eos = {*end};
  }
  return c;
}

std::vector<SafetensorsDeclaration> state_declarations(const Optimizer& optimizer,
                                                       const std::vector<WeightSpec>& weights) {
  if (!optimizer.resumable())
    throw Error(
        "parameters were added to the optimizer after its first step: a checkpoint holds one step count");
  std::vector<SafetensorsDeclaration> tensors;
  for (const OptimizerState& state : optimizer.state()) {
    for (const WeightSpec& w : weights) {
      tensors.push_back({state_name(state, w.name), SafetensorsType::f32, {}});
      for (int i = 0; i < w.shape.rank(); ++i)
        tensors.back().shape.push_back(static_cast<uint64_t>(w.shape[i]));
    }
  }
  return tensors;
}

std::vector<TensorFile> tensor_files(const HfConfig& config, const Optimizer& optimizer) {
  std::vector<TensorFile> files;
  for (const HfFile& f : hf_files(config))
    files.push_back(planned(f.name, declarations_of(f, config.dtype), hf_metadata()));
  files.push_back(planned(kOptimizerFile, state_declarations(optimizer, weight_specs(config.model)), {}));
  return files;
}

SaveTexts save_texts(const RunFolder* run, const CheckpointParts& parts, const TrainState& state, int keep) {
  return {run, saved_config(parts), parts.tokenizer, state, keep};
}

std::string SaveTexts::folder() const {
  return (fs::path(run->checkpoints()) / checkpoint_name(state.step())).string();
}

std::string SaveTexts::temporary() const { return cat(folder(), ".tmp.", run->generation()); }

void write_texts(const SaveTexts& save, std::vector<ManifestFile> files) {
  const std::string folder = save.temporary();
  Manifest manifest{save.state.step(), save.run->generation(), std::move(files)};
  if (save.tokenizer) save_tokenizer(*save.tokenizer, folder);
  write_file_atomically((fs::path(folder) / kStateFile).string(), train_state_json(save.state));
  for (const char* name : {kHfIndexName, "config.json", "tokenizer.json", kStateFile}) {
    if (fs::exists(fs::path(folder) / name)) manifest.files.push_back(describe_file(folder, name));
  }
  write_file_atomically((fs::path(folder) / Manifest::kName).string(), manifest_text(manifest));
}

void publish(const SaveTexts& save) {
  const std::string temporary = save.temporary(), final_name = save.folder();
  save.run->check_still_held();
  if (!FileWatchGuard::allows(FileOp::rename, final_name) ||
      ::rename(temporary.c_str(), final_name.c_str()) != 0)
    throw Error(cat("cannot rename ", temporary, " to ", final_name, ": ", std::strerror(errno)));
  // The second: it may be new itself.
  if (!sync_folder_of(final_name) || !sync_folder_of(save.run->checkpoints())) {
    const int why = errno;
    (void)std::rename(final_name.c_str(),
                      temporary.c_str());  // it may or may not be on disk: it is not there
    throw Error(cat("cannot sync to disk the folder of ", final_name, ": ", std::strerror(why)));
  }
}

}  // namespace kiln
