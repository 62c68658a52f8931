#include <filesystem>
#include <map>

#include "base/folder.h"
#include "train/checkpoint/checkpoint_names.h"
#include "train/checkpoint/pending_save.h"

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

// A rank that has everything: files are written one after the other.
class WholeSave final : public PendingSave {
 public:
  WholeSave(SaveTexts texts, SaveSources sources, std::vector<SafetensorsDeclaration> state_tensors)
      : texts_(std::move(texts)),
        sources_(std::move(sources)),
        state_tensors_(std::move(state_tensors)),
        folder_(texts_.folder()),
        temporary_(texts_.temporary()) {}
  // After the rename there is nothing left to remove.
  ~WholeSave() override { remove_tree(temporary_); }

  void write() override {
    try {
      fs::create_directories(temporary_);
      files_ = describe_weights(temporary_, save_hf_folder(temporary_, texts_.config, *sources_.weights));
      files_.push_back(write_optimizer());
    } catch (const fs::filesystem_error& e) {
      throw Error(cat("cannot write ", temporary_, ": ", e.code().message()));
    }
  }

  void share() override {}

  void publish(const Warn& warn) override {
    try {
      write_texts(texts_, std::move(files_));
      kiln::publish(texts_);
    } catch (const fs::filesystem_error& e) {
      throw Error(cat("cannot write ", temporary_, ": ", e.code().message()));
    }
    retire_checkpoints(*texts_.run, texts_.state.step(), texts_.keep, warn);
  }

  const std::string& folder() const override { return folder_; }

 private:
  ManifestFile write_optimizer() {
    const std::vector<WeightSpec> weights = weight_specs(texts_.config.model);
    std::vector<ManifestTensor> tensors;
    tensors.reserve(state_tensors_.size());
    for (const SafetensorsDeclaration& t : state_tensors_) tensors.push_back({t.name, t.bytes(), 0});
    SafetensorsWriter writer((fs::path(temporary_) / kOptimizerFile).string(), std::move(state_tensors_));
    std::vector<float> piece;
    for (const auto& [name, values] : sources_.state) {
      for (const WeightSpec& w : weights) {
        for_each_piece(w, 1, [&](int64_t row, int64_t rows) {
          piece.resize(static_cast<std::size_t>(rows * w.columns()));
          values->read(w, row, piece);
          writer.append(std::as_bytes(std::span(piece)));
        });
      }
    }
    const std::vector<uint32_t> checksums = writer.commit();
    for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].crc32c = checksums[i];
    return describe_file(temporary_, kOptimizerFile, std::move(tensors));
  }

  SaveTexts texts_;
  SaveSources sources_;
  std::vector<SafetensorsDeclaration> state_tensors_;
  std::string folder_, temporary_;
  std::vector<ManifestFile> files_;
};

}  // namespace

std::unique_ptr<PendingSave> begin_save_of_one(const RunFolder& run, const CheckpointParts& parts,
                                               SaveSources sources, const TrainState& state, int keep) {
  return std::make_unique<WholeSave>(save_texts(&run, parts, state, keep), std::move(sources),
                                     state_declarations(parts.optimizer, weight_specs(parts.model.config())));
}

std::unique_ptr<PendingSave> begin_save(const RunFolder* run, const CheckpointParts& parts,
                                        SaveSources sources, const TrainState& state, int keep) {
  if (parts.comm != nullptr) return begin_save_of_ranks(run, parts, std::move(sources), state, keep);
  return begin_save_of_one(*run, parts, std::move(sources), state, keep);
}

std::string save_checkpoint(const RunFolder& run, const CheckpointParts& parts, const TrainState& state,
                            int keep, const Warn& warn) {
  const auto save = begin_save_of_one(run, parts, device_sources(parts), state, keep);
  save->write();
  save->publish(warn);
  return save->folder();
}

}  // namespace kiln
