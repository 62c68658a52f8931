#include "base/atomic_folder.h"

#include <fcntl.h>
#include <linux/fs.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/folder.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

bool holds_something(const std::string& folder) {
  std::error_code ignored;
  return fs::is_directory(folder, ignored) && !fs::is_empty(folder, ignored);
}

void check_removable(const std::string& folder, const AtomicFolder::MayRemove& may_remove) {
  for (const FolderEntry& e : list_folder(folder)) {
    if (e.kind != EntryKind::file || !may_remove(e.name))
      throw Error(cat("will not replace ", folder, ": it holds '", e.name, "', which is no part of a model"),
                  "name another folder");
  }
}

// Swaps two folders in one step, so that there is always a whole one under both names.
bool swap_folders(const std::string& a, const std::string& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

}  // namespace

AtomicFolder::AtomicFolder(std::string path, bool replace, const MayRemove& may_remove)
    : path_(std::move(path)) {
  while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
  temporary_ = path_ + ".tmp";
  try {
    if (fs::exists(path_) && !fs::is_directory(path_)) throw Error(cat(path_, " exists and is not a folder"));
    if (holds_something(path_)) {
      if (!replace)
        throw Error(cat(path_, " exists and is not empty"),
                    "name another folder, or replace it with --force");
      check_removable(path_, may_remove);
    }
    if (fs::exists(temporary_)) {  // of a run that was broken off
      if (!fs::is_directory(temporary_)) throw Error(cat(temporary_, " exists and is not a folder"));
      check_removable(temporary_, may_remove);
      if (!remove_tree(temporary_))
        throw Error(cat("cannot remove ", temporary_, ": ", std::strerror(errno)));
    }
    fs::create_directories(temporary_);
  } catch (const fs::filesystem_error& error) {
    throw Error(cat("cannot make the folder ", path_, ": ", error.code().message()));
  }
  open_ = true;
}

AtomicFolder::~AtomicFolder() {
  if (open_) remove_tree(temporary_);
}

void AtomicFolder::commit() {
  const auto fail = [&] {
    throw Error(cat("cannot rename ", temporary_, " to ", path_, ": ", std::strerror(errno)));
  };
  if (!holds_something(path_)) {  // rename() itself replaces an empty folder
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail();
    open_ = false;
  } else if (swap_folders(temporary_, path_)) {
    // The old one now has the temporary name and goes with it.
  } else {  // file systems that cannot exchange
    const std::string old = path_ + ".old";
    if (::rename(path_.c_str(), old.c_str()) != 0) fail();
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail();
    open_ = false;
    remove_tree(old);
  }
  if (!sync_folder_of(path_)) throw Error(cat("cannot sync to disk the folder of ", path_));
}

}  // namespace kiln
