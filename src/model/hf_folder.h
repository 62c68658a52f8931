// A model as Hugging Face keeps it: a folder with config.json and model.safetensors, or several such files
// and an index. Opening one checks all of it: that the files agree with the index, that every weight the
// configuration asks for is there once in the right shape, and that there is nothing else.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/safetensors.h"
#include "model/hf_config.h"
#include "model/param_values.h"
#include "model/rope_layout.h"

namespace kiln {

class HfFolder final : public WeightSource {
 public:
  // Throws Error naming the file and the tensor.
  explicit HfFolder(const std::string& folder);

  const std::string& path() const { return path_; }
  const HfConfig& config() const { return config_; }
  const std::vector<WeightSpec>& weights() const { return weights_; }  // in the order they are used
  std::size_t files() const { return files_.size(); }
  uint64_t bytes() const;  // of all tensors
  SafetensorsType type_of(const WeightSpec& weight) const;

  // As they are in the files, F64, F32, BF16 or F16, converted to fp32.
  void read(const WeightSpec& weight, int64_t first_row, std::span<float> out) override;

 private:
  struct Place {
    const SafetensorsFile* file;
    SafetensorsEntry entry;
  };
  void open_files();
  void open_shards(const std::string& index_path);
  void check_weights();
  void check_tied_head(const Place& head);

  std::string path_;
  HfConfig config_;
  std::deque<SafetensorsFile> files_;
  std::map<std::string, Place, std::less<>> places_;
  std::vector<WeightSpec> weights_;
};

// Progress over the weights: bytes (fp32) done and total.
using WeightProgress = std::function<void(uint64_t done, uint64_t all)>;

// Fills a materialized store; of a sharded one, what this rank has. `layout` is that of the source.
void load_weights(WeightSource& source, const ModelConfig& config, RopeLayout layout, RankContext& ctx,
                  ParamStore& store, const WeightProgress& progress = {});

bool same_shape(std::span<const uint64_t> in_file, const Shape& wanted);

// Values at `bytes`, whatever their alignment, as fp32.
void to_floats(SafetensorsType type, const std::byte* bytes, std::span<float> out);

}  // namespace kiln
