#include "model/hf_index.h"
#include "base/json_reader.h"

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/safetensors_header.h"

namespace kiln {
namespace {

constexpr std::size_t kMostBytes = SafetensorsHeader::kMostBytes;

// The name of a file in the index's folder: nothing that could lead elsewhere.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

}  // namespace

HfIndex parse_hf_index(std::string_view text, std::string_view source) {
  const Json document = parse_json(
      text, {.max_bytes = kMostBytes, .max_values = SafetensorsHeader::kMostTensors + 1000}, source);
  const JsonValue root(document, source);
  HfIndex index;
  if (root.has("metadata") && root.at("metadata").has("total_size"))
    index.total_size = root.at("metadata").at("total_size").unsigned_integer();
  const JsonValue map = root.at("weight_map");
  if (map.object().empty()) map.fail("is empty");
  for (const auto& [tensor, value] : map.object()) {
    const JsonValue file = map.child(tensor.substr(0, 80), value);
    if (tensor.size() > SafetensorsHeader::kLongestName)
      file.fail(cat("is a name of ", tensor.size(), " bytes; at most ", SafetensorsHeader::kLongestName,
                    " are read"));
    if (!is_plain_name(file.string()))
      file.fail(cat("is '", file.string().substr(0, 80),
                    "'; expected the plain name of a file in the same folder"));
    index.weight_map.emplace(tensor, file.string());
  }
  return index;
}

HfIndex read_hf_index(const std::string& path) {
  return parse_hf_index(read_small_file(path, kMostBytes, "an index of shards"), path);
}

std::string hf_index_json(const HfIndex& index) {
  Json metadata = Json::object();
  if (index.total_size) metadata["total_size"] = *index.total_size;
  Json map = Json::object();
  for (const auto& [tensor, file] : index.weight_map) map.push_back({tensor, file});
  const Json page = {{"metadata", std::move(metadata)}, {"weight_map", std::move(map)}};
  return page.dump(2) + "\n";
}

}  // namespace kiln
