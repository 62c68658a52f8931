// Starting ranks as processes of this machine, and reporting how they ended.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "dist/launch/rank_status_page.h"

namespace kiln {

struct LaunchRequest {
  int ranks = 1;
  std::string transport = "mpi";     // mpi or nccl
  double timeout = 60;               // seconds, of a collective; also of the rendezvous
  std::string hosts;                 // "a,b" as mpirun's --host has it; empty: this machine alone
  std::string flight_folder;         // where ranks leave their last calls when one fails; empty: nowhere
  std::vector<std::string> command;  // the program's path and its arguments
  int output = 1;                    // the file that rank 0's stdout goes to
  // A line of a rank's stderr; rank -1: of mpirun. Default: to stderr, with the rank before it.
  std::function<void(int rank, const std::string& line)> on_line;
  // True: ranks are asked to end (SIGTERM), and have `grace` seconds to finish their step and save.
  std::function<bool()> stop;
  double grace = 30;
  std::function<bool()> end_now;  // true: every process is ended at once
  bool oversubscribe = false;     // more than kMostRanksPerCore ranks to a core are meant
};

// Returns when every rank has ended well. Throws Error with one line that names the first rank that did not,
// where it was, and how it ended; no process that was started runs any more then, and no file of theirs is
// left. Error(unavailable) where there is no mpirun, Error(usage) where the machine is too small.
void launch_ranks(const LaunchRequest& request);

// mpirun's own path, of KILN_MPIRUN or PATH; empty where there is none.
std::string find_mpirun();

// What mpirun says of a rank that ended badly, read from its own words.
struct ExitCause {
  int rank = -1;
  int signal = 0;       // 0: it ended by itself
  int exit_status = 0;  // with this
};
ExitCause read_exit_cause(const std::string& chatter);

// The one line: of all ranks' notes and mpirun's exit cause, the first cause.
Error explain_failure(const std::vector<RankStatus>& ranks, const ExitCause& cause, int status);

}  // namespace kiln
