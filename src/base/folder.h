// Reading and removing folders by system calls. The standard library's directory iterators allocate in
// functions that must not throw, so a program that runs out of memory inside one is ended on the spot; and
// what a failure leaves behind must go without any memory at all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln {

enum class EntryKind { file, folder, link, other };  // links are not followed

struct FolderEntry {
  std::string name;  // without the folder's
  EntryKind kind = EntryKind::other;
};

// In the order of their names. std::filesystem::filesystem_error where the folder cannot be read.
std::vector<FolderEntry> list_folder(const std::string& path);

// Whether there is nothing in the folder but, perhaps, this. False where it cannot be read. Allocates
// nothing.
bool holds_only(const std::string& folder, std::string_view name) noexcept;

// A file, or a folder with all that is in it. False, with errno set, where something could not be removed;
// what is not there is removed. Allocates nothing.
bool remove_tree(const std::string& path) noexcept;

}  // namespace kiln
