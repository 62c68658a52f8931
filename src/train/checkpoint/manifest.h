// What a checkpoint folder holds, to the byte: written last, read first. A folder whose manifest does not
// match the files next to it is ignored by a resumed run.
//
//   {
//     "format": 1, "step": 40, "generation": 3,
//     "files": [{"name": "model.safetensors", "bytes": 9120, "crc32c": "0badcafe",
//                "tensors": [{"name": "model.norm.weight", "bytes": 256, "crc32c": "..."}, ...]}, ...],
//     "crc32c": "8 hexadecimal digits of all bytes before this line"
//   }
//
// Of a file with tensors, crc32c is that of what comes before the first one; they follow it without a hole.
// So every byte of the folder is under exactly one checksum, and a flipped bit can be pinned to a tensor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

struct ManifestTensor {
  std::string name;
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
};

struct ManifestFile {
  std::string name;
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
  std::vector<ManifestTensor> tensors;
};

struct Manifest {
  static constexpr const char* kName = "manifest.json";
  int64_t step = 0;
  uint64_t generation = 0;  // of the process that wrote it: see train/run/run_folder.h
  std::vector<ManifestFile> files;
};

std::string manifest_text(const Manifest& manifest);

// Throws Error, `source` first, unless the text is exactly what manifest_text writes for some manifest.
Manifest parse_manifest(std::string_view text, std::string_view source);

// Of a file that is complete: a small one is read back whole; of one with tensors the part before them is,
// and the tensors' checksums are those of the bytes that were handed to the writer.
ManifestFile describe_file(const std::string& folder, const std::string& name,
                           std::vector<ManifestTensor> tensors = {});

// Reads every byte of the folder's files. Throws Error naming the file, and the tensor, that is not as it was
// written.
Manifest verify_checkpoint(const std::string& folder);

}  // namespace kiln
