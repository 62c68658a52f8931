// A file of known size that several writers fill, each its own ranges: made whole by one of them, under a
// folder that is published only when all are done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kiln {

class PlacedFile {
 public:
  // Makes a file of `bytes` that begins with `front`; the rest reads as zeros. It is not synced to disk
  // before somebody calls sync(). Errors name the path.
  static void create(const std::string& path, std::string_view front, uint64_t bytes);

  explicit PlacedFile(std::string path);  // one that is there
  ~PlacedFile();
  PlacedFile(PlacedFile&& o) noexcept;
  PlacedFile& operator=(PlacedFile&&) = delete;

  void write(uint64_t offset, std::span<const std::byte> bytes);
  void sync();  // forces what was written to disk

 private:
  PlacedFile(std::string path, int flags);
  [[noreturn]] void fail(std::string_view doing, uint64_t bytes = 0, uint64_t at = 0) const;

  std::string path_;
  int file_ = -1;
};

}  // namespace kiln
