// Writes tokens as llm.c has them: uint16 where the vocabulary fits, else uint32; a new file whenever one is
// full. Each file appears under its name only when it is whole.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"

namespace kiln {

struct ShardFile {
  std::string name;  // without the folder
  int64_t tokens;
};

class ShardWriter {
 public:
  static constexpr int64_t kMostTokens = (int64_t{1} << 31) - 1;  // the header's count is an int32

  // Files <folder>/<prefix>_000000.bin, <prefix>_000001.bin, ...
  ShardWriter(std::string folder, std::string prefix, int32_t vocab_size, int64_t tokens_per_shard);
  ~ShardWriter();

  void append(std::span<const int32_t> ids);
  int64_t tokens() const { return tokens_; }

  // Closes the last file and gives the list of all. Without it the file being written is thrown away.
  std::vector<ShardFile> finish();

 private:
  void open();
  void close();

  std::string folder_, prefix_;
  int32_t vocab_size_;
  int64_t limit_;
  bool wide_;
  std::unique_ptr<AtomicFile> file_;
  int64_t in_file_ = 0;
  int64_t tokens_ = 0;
  std::vector<std::byte> packed_;
  std::vector<ShardFile> files_;
};

}  // namespace kiln
