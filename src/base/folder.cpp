#include "base/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include "base/on_exit.h"

namespace kiln {
namespace {

constexpr std::size_t kNamesAtOnce = 4096;  // bytes

int open_folder(int parent, const char* name) {
  return ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

bool is_dots(const char* name) {
  const std::string_view n(name);
  return n == "." || n == "..";
}

// Calls see(entry) for each until it answers false. False where the folder cannot be read to its end.
template <class See>
bool for_each_entry(int folder, const See& see) {
  alignas(dirent64) std::array<char, kNamesAtOnce> names;
  for (;;) {
    const ssize_t bytes = ::getdents64(folder, names.data(), names.size());
    if (bytes < 0) return false;
    if (bytes == 0) return true;
    for (ssize_t at = 0; at < bytes;) {
      const auto& entry = *reinterpret_cast<const dirent64*>(names.data() + at);
      at += entry.d_reclen;
      if (!is_dots(entry.d_name) && !see(entry)) return true;
    }
  }
}

bool remove_at(int parent, const char* name) noexcept;

bool empty_folder(int folder) noexcept {
  // What is removed while it is read may hide what comes after it: again, until nothing is found.
  for (;;) {
    bool found = false, gone = true;
    if (::lseek(folder, 0, SEEK_SET) < 0) return false;
    const bool read = for_each_entry(folder, [&](const dirent64& entry) {
      found = true;
      gone = remove_at(folder, entry.d_name);
      return gone;
    });
    if (!read || !gone) return false;
    if (!found) return true;
  }
}

bool remove_at(int parent, const char* name) noexcept {
  if (::unlinkat(parent, name, 0) == 0 || errno == ENOENT) return true;
  if (errno != EISDIR && errno != EPERM) return false;
  const int folder = open_folder(parent, name);
  if (folder < 0) return false;
  const bool empty = empty_folder(folder);
  const int why = errno;
  ::close(folder);
  errno = why;
  return empty && ::unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

EntryKind kind_of(int folder, const dirent64& entry) {
  if (entry.d_type == DT_REG) return EntryKind::file;
  if (entry.d_type == DT_DIR) return EntryKind::folder;
  if (entry.d_type == DT_LNK) return EntryKind::link;
  struct stat facts{};  // some file systems do not say it in the entry
  if (entry.d_type != DT_UNKNOWN || ::fstatat(folder, entry.d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0)
    return EntryKind::other;
  return S_ISREG(facts.st_mode)   ? EntryKind::file
         : S_ISDIR(facts.st_mode) ? EntryKind::folder
         : S_ISLNK(facts.st_mode) ? EntryKind::link
                                  : EntryKind::other;
}

}  // namespace

std::vector<FolderEntry> list_folder(const std::string& path) {
  const auto fail = [&] {
    throw std::filesystem::filesystem_error("cannot list", path,
                                            std::error_code(errno, std::system_category()));
  };
  std::vector<FolderEntry> entries;
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) fail();
  const OnExit close([&] { ::close(folder); });
  const bool read = for_each_entry(folder, [&](const dirent64& entry) {
    entries.push_back({entry.d_name, kind_of(folder, entry)});
    return true;
  });
  if (!read) fail();
  std::sort(entries.begin(), entries.end(),
            [](const FolderEntry& a, const FolderEntry& b) { return a.name < b.name; });
  return entries;
}

bool holds_only(const std::string& path, std::string_view name) noexcept {
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return false;
  bool only = true;
  const bool read = for_each_entry(folder, [&](const dirent64& entry) {
    only = name == entry.d_name;
    return only;
  });
  ::close(folder);
  return read && only;
}

bool remove_tree(const std::string& path) noexcept { return remove_at(AT_FDCWD, path.c_str()); }

}  // namespace kiln
