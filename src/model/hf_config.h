// Hugging Face's config.json of a LLaMA: read with the keys of transformers 4 (torch_dtype, rope_theta,
// rope_scaling) and 5 (dtype, rope_parameters), written with both. What kiln cannot do is refused by its key
// and value; keys it does not know are passed over, since these files carry many.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "model/config.h"

namespace kiln {

struct HfConfig {
  ModelConfig model;
  int64_t max_positions = 2048;  // max_position_embeddings: the longest sequence it was trained on
  double initializer_range = 0.02;
  DType dtype = DType::f32;         // of the weights in the folder
  std::optional<int64_t> bos, pad;  // ids of the tokenizer's special tokens
  std::vector<int64_t> eos;         // none, one, or several
};

// Throws Error, `source` first.
HfConfig parse_hf_config(std::string_view json_text, std::string_view source);
HfConfig read_hf_config(const std::string& path);  // the file, or a folder with a config.json

std::string hf_config_json(const HfConfig& config);

// "float32" as these files say it; parse_ of none of fp64, fp32, bf16 and fp16 is empty.
std::string_view torch_name_of(DType dtype);
std::optional<DType> parse_torch_dtype(std::string_view name);

}  // namespace kiln
