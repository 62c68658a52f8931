#include "base/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/file_watch.h"
#include "base/write_at.h"

namespace kiln {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

}  // namespace

bool sync_folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const int file = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return false;
  const bool done = FileWatchGuard::allows(FileOp::sync, path) &&
                    (::fsync(file) == 0 || errno == EINVAL);  // some file systems have no such thing
  ::close(file);
  return done;
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".tmp") {
  buffer_.reserve(kBufferBytes);  // first: an exception after the file is there would leave it
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file_ < 0) fail("cannot create");
}

AtomicFile::~AtomicFile() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::fail(std::string_view doing, uint64_t bytes, uint64_t at) const {
  const int why = errno;
  throw Error(cat(doing, " ", path_, ": ", std::strerror(why),
                  bytes == 0 ? "" : cat(" (", bytes, " bytes more were wanted after ", at, ")")),
              why == ENOSPC ? "free some space, or name a folder on another disk"
                            : "name a folder that can be written");
}

void AtomicFile::append(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() >= kBufferBytes) {
    write_at(size_, bytes);
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
  size_ += bytes.size();
}

void AtomicFile::overwrite(uint64_t offset, std::span<const std::byte> bytes) {
  if (offset > size_ || bytes.size() > size_ - offset)
    throw Error(
        cat("cannot overwrite ", bytes.size(), " bytes at ", offset, " of ", path_, ": it has ", size_));
  flush();
  write_at(offset, bytes);
}

void AtomicFile::flush() {
  write_at(size_ - buffer_.size(), buffer_);
  buffer_.clear();
}

void AtomicFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  if (!FileWatchGuard::allows(FileOp::write, path_) || !kiln::write_at(file_, offset, bytes))
    fail("cannot write", bytes.size(), offset);
}

void AtomicFile::commit() {
  flush();
  if (!FileWatchGuard::allows(FileOp::sync, path_) || ::fsync(file_) != 0) fail("cannot write");
  const int file = std::exchange(file_, -1);
  if (::close(file) != 0 || !FileWatchGuard::allows(FileOp::rename, path_) ||
      ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int why = errno;
    ::unlink(temporary_.c_str());
    errno = why;
    fail("cannot write");
  }
  if (!sync_folder_of(path_)) fail("cannot sync to disk the folder of");
}

void write_file_atomically(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.append(text);
  file.commit();
}

}  // namespace kiln
