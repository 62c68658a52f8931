#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace kiln {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  auto give_up = [&](const std::string& why) {
    if (file_ >= 0) ::close(file_);
    throw Error(cat("cannot read ", path, ": ", why));
  };
  // O_NONBLOCK: opening a pipe would wait for a writer.
  file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file_ < 0) give_up(std::strerror(errno));
  struct stat info{};
  if (::fstat(file_, &info) != 0) give_up(std::strerror(errno));
  if (S_ISDIR(info.st_mode)) give_up("it is a folder");
  if (!S_ISREG(info.st_mode)) give_up("it is not a regular file");
  size_ = static_cast<std::size_t>(info.st_size);
  if (size_ == 0) return;  // nothing to map
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file_, 0);
  if (data == MAP_FAILED) give_up(std::strerror(errno));
  data_ = data;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
  if (file_ >= 0) ::close(file_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(file_, other.file_);
  return *this;
}

void MappedFile::check_unchanged() const {
  struct stat info{};
  if (file_ < 0) return;
  if (::fstat(file_, &info) != 0) throw Error(cat("cannot read ", path_, ": ", std::strerror(errno)));
  if (static_cast<std::size_t>(info.st_size) != size_) {
    throw Error(cat(path_, " changed while it was read: it had ", size_, " bytes and now has ", info.st_size),
                "write new data under another name and start again");
  }
}

std::string read_small_file(const std::string& path, std::size_t most, std::string_view what) {
  const MappedFile file(path);
  if (file.size() > most)
    throw Error(cat(path, " has ", file.size(), " bytes; ", what, " of more than ", most, " is not read"));
  return std::string(file.text());
}

}  // namespace kiln
