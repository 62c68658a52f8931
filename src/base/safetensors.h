// Reading a safetensors file: mapped, and checked from end to end before anything is taken from it.
// safetensors_header.h has the format and its rules.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/mapped_file.h"
#include "base/safetensors_header.h"

namespace kiln {

class SafetensorsFile {
 public:
  // Throws Error, path first, unless the file is exactly what its header says.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const SafetensorsHeader& header() const { return header_; }
  std::size_t data_bytes() const { return data_.size(); }

  // Mapped memory, of no particular alignment. Error when the file has been cut since it was opened.
  std::span<const std::byte> bytes(const SafetensorsEntry& tensor) const;

 private:
  MappedFile file_;
  SafetensorsHeader header_;
  std::span<const std::byte> data_;
};

}  // namespace kiln
