#include "base/atomic_folder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

bool is_ours(std::string_view name) { return name.ends_with(".ours"); }

TEST(AtomicFolder, AppearsAtCommitAndNotBefore) {
  const TempFolder folder;
  const std::string path = folder / "deep/model";
  {
    const AtomicFolder broken(path + "/", false, is_ours);
    folder.write("deep/model.tmp/a.ours", "1");
  }
  EXPECT_TRUE(fs::is_empty(folder / "deep"));
  AtomicFolder whole(path, false, is_ours);
  folder.write("deep/model.tmp/a.ours", "2");
  EXPECT_FALSE(fs::exists(path));
  whole.commit();
  EXPECT_EQ(folder.read("deep/model/a.ours"), "2");
  EXPECT_FALSE(fs::exists(path + ".tmp"));
}

TEST(AtomicFolder, AnEmptyFolderIsTakenAndWhatABrokenRunLeftIsCleared) {
  const TempFolder folder;
  fs::create_directory(folder / "m");
  folder.write("m.tmp/old.ours", "x");
  AtomicFolder whole(folder / "m", false, is_ours);
  EXPECT_TRUE(fs::is_empty(folder / "m.tmp"));
  folder.write("m.tmp/a.ours", "2");
  whole.commit();
  EXPECT_EQ(folder.read("m/a.ours"), "2");
}

TEST(AtomicFolder, ReplacesOnlyWhatItMay) {
  const TempFolder folder;
  const std::string path = folder / "m";
  folder.write("m/old.ours", "1");
  EXPECT_NE(KILN_ERROR_OF(AtomicFolder(path, false, is_ours)).find("is not empty"), std::string::npos);
  {
    AtomicFolder next(path, true, is_ours);
    folder.write("m.tmp/new.ours", "2");
    EXPECT_EQ(folder.read("m/old.ours"), "1");
    next.commit();
  }
  EXPECT_FALSE(fs::exists(path + ".tmp"));
  EXPECT_FALSE(fs::exists(path + "/old.ours"));
  EXPECT_EQ(folder.read("m/new.ours"), "2");

  folder.write("m/letter", "mine");
  EXPECT_NE(KILN_ERROR_OF(AtomicFolder(path, true, is_ours)).find("it holds 'letter'"), std::string::npos);
  fs::remove(folder / "m/letter");
  folder.write("m/sub/x.ours", "mine");
  EXPECT_NE(KILN_ERROR_OF(AtomicFolder(path, true, is_ours)).find("it holds 'sub'"), std::string::npos);
  EXPECT_EQ(folder.read("m/sub/x.ours"), "mine");
  folder.write("n.tmp/letter", "mine");
  EXPECT_NE(KILN_ERROR_OF(AtomicFolder(folder / "n", true, is_ours)).find("it holds 'letter'"),
            std::string::npos);
  folder.write("file", "");
  EXPECT_NE(KILN_ERROR_OF(AtomicFolder(folder / "file", true, is_ours)).find("is not a folder"),
            std::string::npos);
}

}  // namespace
}  // namespace kiln
