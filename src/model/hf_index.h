// model.safetensors.index.json: which file of a sharded model holds which tensor.
//
//   {"metadata": {"total_size": 123}, "weight_map": {"model.norm.weight":
//   "model-00001-of-00002.safetensors"}}
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace kiln {

inline constexpr const char* kHfIndexName = "model.safetensors.index.json";

struct HfIndex {
  std::optional<uint64_t> total_size;             // bytes of all tensors
  std::map<std::string, std::string> weight_map;  // tensor to file; plain names, in the index's own folder
};

// Throws Error, `source` first.
HfIndex parse_hf_index(std::string_view json_text, std::string_view source);
HfIndex read_hf_index(const std::string& path);

std::string hf_index_json(const HfIndex& index);

}  // namespace kiln
