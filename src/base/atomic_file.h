// A file that appears whole or not at all: written under a temporary name, synced to disk, renamed, and
// the folder synced to disk too. A crash in between leaves the old file, if there was one,
// untouched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

class AtomicFile {
 public:
  // Opens "<path>.tmp", replacing what an earlier, broken run may have left there.
  explicit AtomicFile(std::string path);
  ~AtomicFile();  // without commit(): removes the temporary file
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // bytes appended so far

  void append(std::span<const std::byte> bytes);
  void append(std::string_view text) { append(std::as_bytes(std::span(text))); }
  void overwrite(uint64_t offset, std::span<const std::byte> bytes);  // of what was appended: headers
  void commit();

 private:
  [[noreturn]] void fail(std::string_view doing, uint64_t bytes = 0, uint64_t at = 0) const;
  void flush();
  void write_at(uint64_t offset, std::span<const std::byte> bytes);

  std::string path_, temporary_;
  int file_ = -1;
  uint64_t size_ = 0;
  std::vector<std::byte> buffer_;  // the last bytes appended, not yet handed to the system
};

// A rename is safe from a power cut only once the folder it happened in is on disk too. False, with errno
// set, when that failed.
bool sync_folder_of(const std::string& path);

// The whole of it in one call.
void write_file_atomically(const std::string& path, std::string_view text);

}  // namespace kiln
