#include "dist/launch/process_tree.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>

namespace kiln {
namespace {

TEST(ProcessTree, ReadsWhatTheSystemSaysOfAProcess) {
  const auto plain = parse_process_stat("812 (kiln) S 7 812 812 0 -1");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->parent, 7);
  EXPECT_EQ(plain->state, 'S');
  EXPECT_EQ(parse_process_stat("812 (a) R 99 (b) Z 12 1")->parent, 12) << "a name may look like the rest";
  for (const char* text : {"", "812", "812 (kiln) ", "812 (kiln) S", "812 (kiln) S x"})
    EXPECT_FALSE(parse_process_stat(text)) << text;
}

// A child that ignores SIGTERM, in a session of its own, whose parent has ended.
pid_t start_orphan() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const pid_t orphan = ::fork();
    if (orphan == 0) {
      ::setsid();
      std::signal(SIGTERM, SIG_IGN);
      const pid_t own = ::getpid();
      (void)!::write(ends[1], &own, sizeof own);
      for (;;) ::pause();
    }
    ::_exit(0);
  }
  pid_t orphan = 0;
  EXPECT_EQ(::read(ends[0], &orphan, sizeof orphan), static_cast<ssize_t>(sizeof orphan));
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  ::close(ends[0]);
  ::close(ends[1]);
  return orphan;
}

TEST(ProcessTree, EndsOrphansInSessionsOfTheirOwnAndNothingElse) {
  const pid_t earlier = ::fork();
  if (earlier == 0)
    for (;;) ::pause();
  {
    const ProcessTree tree;
    EXPECT_TRUE(tree.living().empty());
    const pid_t orphan = start_orphan();
    const std::vector<pid_t> living = tree.living();
    EXPECT_EQ(living, std::vector<pid_t>{orphan});
    tree.signal(SIGTERM);
    EXPECT_TRUE(tree.end(std::chrono::seconds(5)));
    EXPECT_NE(::kill(orphan, 0), 0) << "it was ended and reaped";
  }
  EXPECT_EQ(::kill(earlier, 0), 0);
  ::kill(earlier, SIGKILL);
  EXPECT_EQ(::waitpid(earlier, nullptr, 0), earlier);
}

}  // namespace
}  // namespace kiln
