#include "base/safetensors.h"

namespace kiln {

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  const SafetensorsParts parts = split_safetensors(file_.bytes(), path);
  header_ = SafetensorsHeader(parts.json, parts.data.size(), path);
  data_ = parts.data;
}

std::span<const std::byte> SafetensorsFile::bytes(const SafetensorsEntry& tensor) const {
  file_.check_unchanged();
  return data_.subspan(static_cast<std::size_t>(tensor.begin), static_cast<std::size_t>(tensor.bytes()));
}

}  // namespace kiln
