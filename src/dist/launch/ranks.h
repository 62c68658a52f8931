// One interface to a run of several ranks, on any transport: threads of this process, or processes of which
// this is one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dist/comm/communicator.h"
#include "dist/comm/mpi_process.h"
#include "dist/launch/rank_env.h"
#include "dist/launch/rank_status_page.h"

namespace kiln {

// What `kiln run` passes to the ranks it starts, in the environment.
inline constexpr const char* kTransportVariable = "KILN_TRANSPORT";
inline constexpr const char* kRanksVariable = "KILN_RANKS";                 // of threads
inline constexpr const char* kTimeoutVariable = "KILN_COMM_TIMEOUT";        // seconds
inline constexpr const char* kLaunchFolderVariable = "KILN_LAUNCH_FOLDER";  // status page and error pipes
inline constexpr const char* kFlightVariable = "KILN_FLIGHT_FOLDER";  // for the last calls of ranks that fail
inline constexpr const char* kJobVariable = "KILN_JOB";               // the token of a rendezvous

struct RanksRequest {
  std::string transport = "threads";  // by the names of transport_names()
  int world = 0;  // 0: as many as were launched, or 1. Of processes: checked against what was launched
  CommOptions comm;
  std::optional<ReductionOrder> reduction{};  // default: as the transport's row says
  std::string config;                         // the same on all ranks: compared at the rendezvous
};

// As this process was started: by `kiln run`, by mpirun or its like, or by hand (threads, one rank).
RanksRequest launched_request();
RanksRequest launched_request(const ReadEnvironment& environment);

using RankBody = std::function<void(RankContext&, Communicator&)>;

// The ranks of a run, for as many pieces of work as there are. With processes they rendezvous when this is
// made, once in a process; rank r > 0 prints nothing from then on (its stdout goes nowhere), each takes its
// share of the cores where options.threads is 0, and of `cuda` the GPU of its place on its machine.
class Ranks {
 public:
  explicit Ranks(const RanksRequest& request);
  ~Ranks();  // without finish(): as ranks that failed
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  bool are_processes() const { return process_ != nullptr; }
  // Runs `body` on every rank: on all of them here where they are threads, on this process's own elsewhere.
  // Contexts and communicators are new each time.
  void run(const RankOptions& options, const CommOptions& comm, const RankBody& body);
  void finish();  // there is no more work; all ranks call it

 private:
  class Process;
  RanksRequest request_;
  std::unique_ptr<Process> process_;
};

// One piece of work.
void run_ranks(const RanksRequest& request, const RankOptions& options, const RankBody& body);

// Notes for the launcher which step of training this rank is in, for the line that says where it failed;
// nothing where no launcher has started it.
std::function<void(int64_t step)> step_notes();

// What a rank says of itself at the rendezvous, and who differs from rank 0: its number, or -1.
std::string config_fingerprint(const std::string& config);
// Throws Error naming the first rank that differs from rank 0, and in what.
void check_fingerprints(const std::vector<std::string>& fingerprints);

}  // namespace kiln
