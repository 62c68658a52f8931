#include "base/child_process.h"

#include <gtest/gtest.h>

#include <csignal>

#include "base/error.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

TEST(ChildProcess, EndsWithAStatusAndWhatItSaid) {
  const ChildResult r = run_child({"/bin/sh", "-c", "echo lost; echo seen >&2; exit 3"});
  EXPECT_EQ(r.status, 3);
  EXPECT_EQ(r.signal, 0);
  EXPECT_EQ(r.errors, "seen\n");
  EXPECT_FALSE(r.done());
  EXPECT_TRUE(run_child({"/bin/sh", "-c", "read x; [ -z \"$x\" ]"}).done()) << "stdin is empty";
  EXPECT_EQ(run_child({"/nowhere/at/all"}).status, 127);
  const TempFolder folder;
  EXPECT_TRUE(run_child({"/bin/sh", "-c", "echo kept"}, {.output = folder / "out"}).done());
  EXPECT_EQ(folder.read("out"), "kept\n");
  EXPECT_THROW(run_child({"/bin/true"}, {.output = folder / "no/such/folder"}), Error);
}

TEST(ChildProcess, IsKilledAfterItsTime) {
  const ChildResult r = run_child({"/bin/sh", "-c", "sleep 60"}, {.seconds = 0.2});
  EXPECT_TRUE(r.timed_out);
  EXPECT_FALSE(r.stopped);
  EXPECT_EQ(r.signal, SIGKILL);
  EXPECT_LT(r.seconds, 30);
}

TEST(ChildProcess, IsKilledWhenAskedToStop) {
  int asked = 0;
  const ChildResult r = run_child({"/bin/sh", "-c", "sleep 60"}, {.stop = [&] { return ++asked > 1; }});
  EXPECT_TRUE(r.stopped);
  EXPECT_FALSE(r.timed_out);
  EXPECT_LT(r.seconds, 30);
}

TEST(ChildProcess, MayKeepWhatItHasBeforeItIsKilled) {
  const TempFolder folder;
  const std::string kept = folder / "kept";
  const ChildLimits limits{.seconds = 0.3, .grace = 20};
  const ChildResult r = run_child(
      {"/bin/sh", "-c", cat("trap 'echo rows > ", kept, "; exit 0' TERM; sleep 60 & wait")}, limits);
  EXPECT_TRUE(r.timed_out);
  EXPECT_TRUE(r.done());
  EXPECT_EQ(folder.read("kept"), "rows\n");
  const ChildResult deaf =
      run_child({"/bin/sh", "-c", "trap '' TERM; sleep 60"}, {.seconds = 0.2, .grace = 0.3});
  EXPECT_EQ(deaf.signal, SIGKILL);
  EXPECT_GE(deaf.seconds, 0.5);
  EXPECT_LT(deaf.seconds, 30);
}

TEST(ChildProcess, ASignalIsTold) {
  EXPECT_EQ(run_child({"/bin/sh", "-c", "kill -SEGV $$"}).signal, SIGSEGV);
}

TEST(ChildProcess, ACopyAnswersOrThrows) {
  int touched = 0;
  EXPECT_EQ(in_a_copy([&] {
              touched = 1;
              return std::string("answer");
            }),
            "answer");
  EXPECT_EQ(touched, 0) << "it was another process";
  EXPECT_EQ(KILN_ERROR_OF(in_a_copy([]() -> std::string { throw Error("no", "try", ErrorKind::usage); })),
            "no | try");
  try {
    in_a_copy([]() -> std::string { throw Error("no", "", ErrorKind::unavailable); });
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::unavailable);
  }
}

}  // namespace
}  // namespace kiln
