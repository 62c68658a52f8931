#include "model/hf_save.h"

#include <cmath>
#include <cstdio>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/safetensors_writer.h"
#include "model/hf_index.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

SafetensorsType file_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return SafetensorsType::f32;
    case DType::bf16:
      return SafetensorsType::bf16;
    case DType::f16:
      return SafetensorsType::f16;
    default:
      throw Error(cat("weights are not written as ", name_of(dtype), "; expected fp32, bf16 or fp16"), {},
                  ErrorKind::usage);
  }
}

template <class T>
std::span<const std::byte> narrowed(const WeightSpec& weight, std::span<const float> values,
                                    std::vector<T>& out) {
  out.resize(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    out[i] = T(values[i]);
    if (std::isinf(static_cast<float>(out[i])) && std::isfinite(values[i]))
      throw Error(cat("weight ", weight.name, " holds ", values[i], ", which ", name_of(dtype_of<T>()),
                      " cannot hold"),
                  "write it as fp32");
  }
  return std::as_bytes(std::span<const T>(out));
}

// Writes the weights of one file, piece by piece.
class ShardWriting {
 public:
  ShardWriting(const HfConfig& config, WeightSource& source, const HfSaveOptions& options)
      : config_(config), source_(source, config.model.head_dim(), options.from, options.to) {}

  template <class Done>
  std::vector<uint32_t> write(const std::string& path, const HfFile& file, const Done& done) {
    SafetensorsWriter writer(path, declarations_of(file, config_.dtype), hf_metadata());
    for (const WeightSpec& w : file.weights) {
      for_each_piece(w, is_turned(w) ? config_.model.head_dim() : 1, [&](int64_t row, int64_t rows) {
        piece_.resize(static_cast<std::size_t>(rows * w.columns()));
        source_.read(w, row, piece_);
        writer.append(as_stored(w));
        done(piece_.size() * sizeof(float));
      });
    }
    return writer.commit();
  }

 private:
  std::span<const std::byte> as_stored(const WeightSpec& w) {
    if (config_.dtype == DType::bf16) return narrowed(w, piece_, bf16_);
    if (config_.dtype == DType::f16) return narrowed(w, piece_, fp16_);
    return std::as_bytes(std::span(piece_));
  }

  const HfConfig& config_;
  RelaidWeights source_;
  std::vector<float> piece_;
  std::vector<bf16> bf16_;
  std::vector<fp16> fp16_;
};

std::string shard_name(std::size_t index, std::size_t count) {
  if (count == 1) return "model.safetensors";
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

}  // namespace

std::vector<HfFile> hf_files(const HfConfig& config, uint64_t max_shard_bytes) {
  std::vector<HfFile> files(1);
  for (WeightSpec& w : weight_specs(config.model)) {
    const uint64_t bytes = static_cast<uint64_t>(w.shape.numel()) * size_of(config.dtype);
    const bool full = files.back().bytes + bytes > std::max<uint64_t>(1, max_shard_bytes);
    if (!files.back().weights.empty() && full) files.emplace_back();
    files.back().weights.push_back(std::move(w));
    files.back().bytes += bytes;
  }
  for (std::size_t i = 0; i < files.size(); ++i) files[i].name = shard_name(i, files.size());
  return files;
}

std::vector<SafetensorsDeclaration> declarations_of(const HfFile& file, DType dtype) {
  std::vector<SafetensorsDeclaration> tensors;
  for (const WeightSpec& w : file.weights) {
    tensors.push_back({w.name, file_type(dtype), {}});
    for (int i = 0; i < w.shape.rank(); ++i)
      tensors.back().shape.push_back(static_cast<uint64_t>(w.shape[i]));
  }
  return tensors;
}

void write_hf_texts(const std::string& folder, const HfConfig& config, const std::vector<HfFile>& files) {
  if (files.size() > 1) {
    HfIndex index;
    index.total_size = 0;
    for (const HfFile& f : files) {
      *index.total_size += f.bytes;
      for (const WeightSpec& w : f.weights) index.weight_map.emplace(w.name, f.name);
    }
    write_file_atomically((fs::path(folder) / kHfIndexName).string(), hf_index_json(index));
  }
  write_file_atomically((fs::path(folder) / "config.json").string(), hf_config_json(config));
}

std::vector<SavedTensor> save_hf_folder(const std::string& folder, const HfConfig& config,
                                        WeightSource& source, const HfSaveOptions& options,
                                        const WeightProgress& progress) {
  (void)file_type(config.dtype);
  const std::vector<HfFile> files = hf_files(config, options.max_shard_bytes);
  uint64_t done = 0, all = 0;
  for (const HfFile& f : files) all += f.bytes / size_of(config.dtype) * sizeof(float);
  std::vector<SavedTensor> saved;
  ShardWriting writing(config, source, options);
  for (const HfFile& f : files) {
    const auto checksums = writing.write((fs::path(folder) / f.name).string(), f, [&](uint64_t bytes) {
      done += bytes;
      if (progress) progress(done, all);
    });
    for (std::size_t k = 0; k < checksums.size(); ++k) {
      const WeightSpec& w = f.weights[k];
      saved.push_back({w.name, w.shape, static_cast<uint64_t>(w.shape.numel()) * size_of(config.dtype),
                       f.name, checksums[k]});
    }
  }
  write_hf_texts(folder, config, files);
  return saved;
}

}  // namespace kiln
