// A child process for work that may hang, run out of memory or crash, without taking down its caller.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace kiln {

struct ChildResult {
  int status = 0;  // its exit status, where it ended by itself
  int signal = 0;  // what ended it otherwise; 0: nothing did
  bool timed_out = false, stopped = false;
  double seconds = 0;
  std::string errors;  // the end of what it wrote to stderr

  bool done() const { return status == 0 && signal == 0; }
};

struct ChildLimits {
  double seconds = 0;                    // it is ended after so long; 0: never
  std::function<bool()> stop = nullptr;  // asked ten times a second; true: it is ended
  double grace = 0;         // from SIGTERM, by which it may keep what it has, to SIGKILL; 0: at once
  std::string output = {};  // the file its stdout goes to; none: it is dropped
};

// Runs `words` (the first is the program's path) with an empty stdin, in its own process group, so that
// Ctrl-C reaches the caller alone. It dies with its caller.
ChildResult run_child(const std::vector<std::string>& args, const ChildLimits& limits = {});

// What `work` returns when it is done in a copy of this process that ends then: whatever it started (CUDA,
// threads) is gone with it. An Error it throws is thrown here. For callers with no other threads.
std::string in_a_copy(const std::function<std::string()>& work);

// This program, to start it again: the very file that runs, even if another was put in its place meanwhile.
inline constexpr const char* kOwnProgram = "/proc/self/exe";

}  // namespace kiln
