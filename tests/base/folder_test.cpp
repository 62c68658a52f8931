#include "base/folder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_of(const std::string& folder) {
  std::vector<std::string> names;
  for (const FolderEntry& e : list_folder(folder)) names.push_back(e.name);
  return names;
}

TEST(Folder, ListsByNameAndDoesNotFollowLinks) {
  const TempFolder folder;
  folder.write("b", "text");
  folder.write(".hidden", "");
  fs::create_directory(folder / "c");
  fs::create_symlink(folder / "b", folder / "a");
  fs::create_directory_symlink(folder / "c", folder / "d");
  EXPECT_EQ(names_of(folder.path()), (std::vector<std::string>{".hidden", "a", "b", "c", "d"}));
  std::vector<EntryKind> kinds;
  for (const FolderEntry& e : list_folder(folder.path())) kinds.push_back(e.kind);
  EXPECT_EQ(kinds, (std::vector{EntryKind::file, EntryKind::link, EntryKind::file, EntryKind::folder,
                                EntryKind::link}));
}

// More names than one call to the system brings.
TEST(Folder, ListsAndRemovesManyEntries) {
  const TempFolder folder;
  constexpr int kFiles = 1000;
  fs::create_directory(folder / "many");
  for (int i = 0; i < kFiles; ++i) folder.write(cat("many/", i), "x");
  EXPECT_EQ(list_folder(folder / "many").size(), static_cast<std::size_t>(kFiles));
  EXPECT_TRUE(remove_tree(folder / "many"));
  EXPECT_FALSE(fs::exists(folder / "many"));
}

TEST(Folder, OneThatCannotBeReadIsAnError) {
  const TempFolder folder;
  folder.write("file", "");
  for (const char* name : {"missing", "file"}) {
    try {
      (void)list_folder(folder / name);
      ADD_FAILURE() << name;
    } catch (const fs::filesystem_error& e) {
      EXPECT_EQ(e.path1().string(), folder / name);
      EXPECT_EQ(e.code().value(), std::string_view(name) == "file" ? ENOTDIR : ENOENT);
    }
    EXPECT_FALSE(holds_only(folder / name, "x"));
  }
}

TEST(Folder, HoldsOnly) {
  const TempFolder folder;
  EXPECT_TRUE(holds_only(folder.path(), "lock"));
  folder.write("lock", "");
  EXPECT_TRUE(holds_only(folder.path(), "lock"));
  EXPECT_FALSE(holds_only(folder.path(), "loc"));
  folder.write("other", "");
  EXPECT_FALSE(holds_only(folder.path(), "lock"));
}

TEST(Folder, RemovesATreeAndNothingThatLinksLeadTo) {
  const TempFolder folder;
  fs::create_directories(folder / "tree/below/deep");
  fs::create_directory(folder / "kept");
  folder.write("kept/file", "text");
  folder.write("tree/below/file", "text");
  fs::create_directory_symlink(folder / "kept", folder / "tree/link");
  EXPECT_TRUE(remove_tree(folder / "tree"));
  EXPECT_EQ(names_of(folder.path()), std::vector<std::string>{"kept"});
  EXPECT_EQ(names_of(folder / "kept"), std::vector<std::string>{"file"});
  EXPECT_TRUE(remove_tree(folder / "kept/file"));
  EXPECT_TRUE(remove_tree(folder / "kept/file")) << "what is not there is removed";
  EXPECT_EQ(names_of(folder / "kept"), std::vector<std::string>{});
}

TEST(Folder, WhatCannotBeRemovedIsSaid) {
  errno = 0;
  EXPECT_FALSE(remove_tree("/proc/self/status"));
  EXPECT_NE(errno, 0);
}

}  // namespace
}  // namespace kiln
