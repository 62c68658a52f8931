// Writes the files of a Hugging Face folder: weights in one safetensors file or several with an index, and
// config.json. Weights are read from their source piece by piece and go straight to disk.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/safetensors_writer.h"
#include "model/hf_config.h"
#include "model/hf_folder.h"

namespace kiln {

struct HfSaveOptions {
  uint64_t max_shard_bytes = 5'000'000'000;  // of tensors in one file; a larger tensor has its own file
  RopeLayout from = RopeLayout::halves;      // order of q and k in the source
  RopeLayout to = RopeLayout::halves;        // and in the file; transformers wants halves
};

// The files weights go to: one, or several below a size, and an index.
struct HfFile {
  std::string name;
  std::vector<WeightSpec> weights;
  uint64_t bytes = 0;  // of tensors
};
std::vector<HfFile> hf_files(const HfConfig& config,
                             uint64_t max_shard_bytes = HfSaveOptions{}.max_shard_bytes);
std::vector<SafetensorsDeclaration> declarations_of(const HfFile& file, DType dtype);
// The metadata transformers looks for.
inline std::vector<std::pair<std::string, std::string>> hf_metadata() { return {{"format", "pt"}}; }
// The index, where there are several files, and config.json.
void write_hf_texts(const std::string& folder, const HfConfig& config, const std::vector<HfFile>& files);

struct SavedTensor {
  std::string name;
  Shape shape;
  uint64_t bytes;
  std::string file;
  uint32_t crc32c;
};

// Into a folder that exists; each file appears whole or not at all, config.json last. config.dtype, one of
// fp32, bf16 and fp16, is what is written. Throws Error for a value that is finite and beyond fp16.
std::vector<SavedTensor> save_hf_folder(const std::string& folder, const HfConfig& config,
                                        WeightSource& source, const HfSaveOptions& options = {},
                                        const WeightProgress& progress = {});

}  // namespace kiln
