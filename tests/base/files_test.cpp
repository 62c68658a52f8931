#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

TEST(MappedFile, ReadsAFileAndAnEmptyOne) {
  const TempFolder folder;
  EXPECT_EQ(MappedFile(folder.write("a", "hello")).text(), "hello");
  EXPECT_EQ(MappedFile(folder.write("b", "")).size(), 0U);
}

TEST(MappedFile, SaysWhatCannotBeRead) {
  const TempFolder folder;
  EXPECT_EQ(KILN_ERROR_OF(MappedFile(folder / "none")),
            "cannot read " + folder / "none" + ": No such file or directory");
  EXPECT_EQ(KILN_ERROR_OF(MappedFile(folder.path())), "cannot read " + folder.path() + ": it is a folder");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(KILN_ERROR_OF(MappedFile(folder / "pipe")),
            "cannot read " + folder / "pipe" + ": it is not a regular file");
}

TEST(MappedFile, NoticesAFileThatShrank) {
  const TempFolder folder;
  const std::string path = folder.write("a", "hello");
  const MappedFile file(path);
  EXPECT_NO_THROW(file.check_unchanged());
  std::filesystem::resize_file(path, 2);
  EXPECT_NE(KILN_ERROR_OF(file.check_unchanged()).find("it had 5 bytes and now has 2"), std::string::npos);
}

TEST(AtomicFile, AppearsOnlyWhenCommitted) {
  const TempFolder folder;
  const std::string path = folder.write("a", "old");
  {
    AtomicFile file(path);
    file.append("new");
    EXPECT_EQ(folder.read("a"), "old");
  }
  EXPECT_EQ(folder.read("a"), "old");
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
  {
    AtomicFile file(path);
    file.append("xxxx new");
    file.append(std::string(3 << 20, 'y'));
    const std::string head = "head";
    file.overwrite(0, std::as_bytes(std::span(head)));
    file.append("z");
    EXPECT_EQ(file.size(), 8U + (3U << 20) + 1);
    file.commit();
  }
  EXPECT_EQ(folder.read("a"), "head new" + std::string(3 << 20, 'y') + "z");
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
}

TEST(AtomicFile, SaysWhatCannotBeWritten) {
  const TempFolder folder;
  EXPECT_NE(KILN_ERROR_OF(AtomicFile(folder / "none/a")).find("No such file or directory"),
            std::string::npos);
  AtomicFile file(folder / "a");
  const std::string bytes = "abc";
  EXPECT_NE(KILN_ERROR_OF(file.overwrite(0, std::as_bytes(std::span(bytes)))).find("it has 0"),
            std::string::npos);
}

}  // namespace
}  // namespace kiln
