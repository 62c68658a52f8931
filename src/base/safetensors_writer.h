// Writing a safetensors file in one pass: the header is made from declarations, then the tensors follow in
// chunks of any size, so that a model is saved without a second copy of it. The file appears whole or not at
// all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/safetensors_header.h"

namespace kiln {

struct SafetensorsDeclaration {
  std::string name;
  SafetensorsType type;
  std::vector<uint64_t> shape;

  uint64_t bytes() const;  // Error where that cannot be counted
};

// What is in a file before its tensors: the length of the header, and the header. `path` is for messages.
// Throws Error when a reader would refuse it, or when a tensor would not begin at a multiple of its element's
// size: wider types come first.
std::string safetensors_front(const std::string& path, const std::vector<SafetensorsDeclaration>& tensors,
                              const std::vector<std::pair<std::string, std::string>>& metadata = {});

class SafetensorsWriter {
 public:
  // Tensors are in the file in the order given; wider types come first, so that each begins at a multiple
  // of its element's size (Error otherwise). Throws before anything is written when the header would be
  // refused by a reader.
  SafetensorsWriter(const std::string& path, std::vector<SafetensorsDeclaration> tensors,
                    const std::vector<std::pair<std::string, std::string>>& metadata = {});

  // The next bytes of the tensor that is being written; the next one begins when it is full.
  void append(std::span<const std::byte> bytes);

  // Error when a tensor is missing or not full. Returns the CRC-32C of each tensor, in the order given.
  std::vector<uint32_t> commit();

  uint64_t size() const { return file_.size(); }  // bytes so far, the header with them

 private:
  void skip_full();

  std::vector<SafetensorsDeclaration> tensors_;
  std::string front_;  // made before the file is, so that a refused one leaves no trace
  AtomicFile file_;
  std::vector<uint32_t> checksums_;  // those of the tensors begun
  uint64_t left_ = 0;                // bytes of the current one
};

}  // namespace kiln
