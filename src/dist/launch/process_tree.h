// Every process that a launch has started, with what those have started: found by parentage in /proc, so that
// one in a process group or session of its own, or whose parent is gone, is in it too. While a ProcessTree
// lives, orphans of the tree become this process's children instead of init's.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string_view>
#include <vector>

namespace kiln {

// What /proc/PID/stat says: "812 (a name) S 1 ...", where the name may hold anything.
struct ProcessStat {
  pid_t parent = 0;
  char state = '?';  // Z: it has ended, and its parent has not noticed
};
std::optional<ProcessStat> parse_process_stat(std::string_view text);

class ProcessTree {
 public:
  ProcessTree();  // children that this process has already are not of the tree
  ~ProcessTree();
  ProcessTree(const ProcessTree&) = delete;
  ProcessTree& operator=(const ProcessTree&) = delete;

  // Its living processes. Those that have ended and are this process's are reaped, but for `kept`, whose
  // status somebody waits for.
  std::vector<pid_t> living(pid_t kept = -1) const;
  void signal(int signal, pid_t kept = -1) const;
  // SIGKILL until none is left, for at most so long; false where some are.
  bool end(std::chrono::milliseconds within, pid_t kept = -1) const;

 private:
  int was_subreaper_ = 0;
  std::vector<pid_t> others_;
};

}  // namespace kiln
