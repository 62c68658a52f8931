#include "base/placed_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/file_watch.h"
#include "base/write_at.h"

namespace kiln {

PlacedFile::PlacedFile(std::string path, int flags) : path_(std::move(path)) {
  file_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC | flags, 0644);
  if (file_ < 0) fail("cannot open");
}

PlacedFile::PlacedFile(std::string path) : PlacedFile(std::move(path), 0) {}

PlacedFile::PlacedFile(PlacedFile&& o) noexcept
    : path_(std::move(o.path_)), file_(std::exchange(o.file_, -1)) {}

PlacedFile::~PlacedFile() {
  if (file_ >= 0) ::close(file_);
}

void PlacedFile::create(const std::string& path, std::string_view front, uint64_t bytes) {
  PlacedFile file(path, O_CREAT | O_TRUNC);
  if (::ftruncate(file.file_, static_cast<off_t>(bytes)) != 0) file.fail("cannot reserve space in", bytes);
  file.write(0, std::as_bytes(std::span(front)));
}

void PlacedFile::write(uint64_t offset, std::span<const std::byte> bytes) {
  if (!FileWatchGuard::allows(FileOp::write, path_) || !kiln::write_at(file_, offset, bytes))
    fail("cannot write", bytes.size(), offset);
}

void PlacedFile::sync() {
  if (!FileWatchGuard::allows(FileOp::sync, path_) || ::fsync(file_) != 0) fail("cannot sync to disk");
}

void PlacedFile::fail(std::string_view doing, uint64_t bytes, uint64_t at) const {
  const int why = errno;
  throw Error(cat(doing, " ", path_, ": ", std::strerror(why),
                  bytes == 0 ? "" : cat(" (", bytes, " bytes were wanted at ", at, ")")),
              why == ENOSPC ? "free some space, or name a folder on another disk"
                            : "name a folder that every rank can write");
}

}  // namespace kiln
