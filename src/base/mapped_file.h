// A whole file as read-only memory. Pages come from the disk when they are read, so the size of a file costs
// address space and nothing else.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace kiln {

class MappedFile {
 public:
  MappedFile() = default;
  // Error naming the path and the reason; folders, pipes and devices are refused.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }
  std::string_view text() const { return {static_cast<const char*>(data_), size_}; }

  // Error when the file is no longer as long as it was: reading a page that is gone would end the process by
  // SIGBUS. Costs one system call; ask before each batch of reads.
  void check_unchanged() const;

 private:
  std::string path_;
  void* data_ = nullptr;
  std::size_t size_ = 0;
  int file_ = -1;
};

// The text of a file of at most `most` bytes; `what` names it in the error ("a tokenizer.json").
std::string read_small_file(const std::string& path, std::size_t most, std::string_view what);

}  // namespace kiln
