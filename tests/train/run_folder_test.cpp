#include "train/run/run_folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "base/error.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

TEST(RunFolder, OneHolderAtATimeAndItsNameIsTold) {
  const TempFolder folder;
  const RunFolder first(folder / "run");
  const std::string said = KILN_ERROR_OF(RunFolder(folder / "run"));
  EXPECT_NE(said.find("is in use by process " + std::to_string(::getpid()) + " on "), std::string::npos)
      << said;
  EXPECT_NE(said.find(", for 0 s"), std::string::npos) << said;
  EXPECT_NE(said.find("--out"), std::string::npos);
}

TEST(RunFolder, EachHolderHasTheNextNumber) {
  const TempFolder folder;
  for (uint64_t i = 1; i <= 3; ++i) {
    const RunFolder run(folder / "run/");
    folder.write("run/run.json", "{}");  // a run that began
    EXPECT_EQ(run.generation(), i);
    EXPECT_EQ(run.path(), folder / "run");
    EXPECT_EQ(KILN_ERROR_OF((run.check_still_held(), 0)), "nothing");
  }
  folder.write("run/lock", "not ours");
  EXPECT_EQ(RunFolder(folder / "run").generation(), 1u);  // unreadable: recounted rather than refused
}

// A process that was thought dead: its lock file is gone, and another process holds the new one.
TEST(RunFolder, AGhostIsToldThatItsPlaceIsTaken) {
  const TempFolder folder;
  const RunFolder ghost(folder / "run");
  std::filesystem::rename(folder / "run/lock", folder / "run/lock.old");
  std::filesystem::copy(folder / "run/lock.old", folder / "run/lock");
  const RunFolder next(folder / "run");
  EXPECT_EQ(next.generation(), 2u);
  EXPECT_NE(KILN_ERROR_OF((ghost.check_still_held(), 0)).find("was taken over by another process"),
            std::string::npos);
  EXPECT_EQ(KILN_ERROR_OF((next.check_still_held(), 0)), "nothing");
}

TEST(RunFolder, TheLockOfAKilledProcessIsFree) {
  const TempFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const RunFolder held(folder / "run");
    ::_exit(0);  // no destructor runs
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(RunFolder(folder / "run").generation(), 2u);
}

TEST(RunFolder, AnEarlierRunIsMovedNotDeleted) {
  const TempFolder folder;
  folder.write("run/checkpoints/step-00000001/x", "weights");
  folder.write("run/metrics.jsonl", "{}");
  folder.write("run/events.out.tfevents.1.host", "e");
  folder.write("run/notes.txt", "mine");
  const RunFolder run(folder / "run");
  const std::string aside = run.set_aside();
  EXPECT_EQ(aside, folder / "run/earlier-1");
  EXPECT_EQ(folder.read("run/earlier-1/checkpoints/step-00000001/x"), "weights");
  EXPECT_EQ(folder.read("run/earlier-1/events.out.tfevents.1.host"), "e");
  EXPECT_EQ(folder.read("run/notes.txt"), "mine");
  EXPECT_FALSE(std::filesystem::exists(folder / "run/checkpoints"));
  EXPECT_EQ(run.set_aside(), "");
}

TEST(RunFolder, AFolderMadeForARunThatNeverBeganGoesWithIt) {
  const TempFolder folder;
  {
    const RunFolder refused(folder / "new");
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "new"));
  std::filesystem::create_directories(folder / "mine");
  {
    const RunFolder refused(folder / "mine");
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "mine/lock"));  // it was there before
  {
    const RunFolder begun(folder / "begun");
    folder.write("begun/run.json", "{}");
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "begun/lock"));
}

TEST(RunFolder, AFolderThatCannotBeIsOneLine) {
  const TempFolder folder;
  folder.write("file", "x");
  EXPECT_NE(KILN_ERROR_OF(RunFolder(folder / "file/run")).find("cannot make the folder"), std::string::npos);
}

}  // namespace
}  // namespace kiln
