// Waiting for MPI requests without ever hanging: they are polled, with a time-out, and with a check for
// another rank's alarm.
#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "dist/comm/comm_options.h"

namespace kiln {

// Throws Error naming the function where MPI says so.
void check_mpi(int code, const char* function);

// A rank that gives up notifies all others, on a communicator separate from the collectives'. One per
// process.
class MpiAlarm {
 public:
  MpiAlarm(MPI_Comm world, bool shares_cores);
  MpiAlarm(const MpiAlarm&) = delete;
  MpiAlarm& operator=(const MpiAlarm&) = delete;
  void free() { MPI_Comm_free(&comm_); }

  bool shares_cores() const { return shares_cores_; }  // more ranks of this machine than cores
  void raise(const std::string& why);                  // from any thread; the first one counts
  void listen();  // throws Error where another rank, or this one, has raised it

 private:
  static constexpr int kTextBytes = 512;
  void note(const std::string& text);

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, world_ = 1;
  bool shares_cores_;
  std::atomic<bool> raised_{false};
  std::mutex mutex_;
  std::string text_;
  std::vector<MPI_Request> sends_;  // never waited for: their receiver may be gone
  std::string sent_;
};

inline constexpr int kNobodyKnows = -1;  // whom a collective of MPI's own waits for

// Requests in flight, each with the rank it depends on.
class MpiWaits {
 public:
  using Clock = std::chrono::steady_clock;
  MpiWaits(MpiAlarm& alarm, std::chrono::milliseconds timeout) : alarm_(alarm), timeout_(timeout) {}
  ~MpiWaits();  // receives still in flight are cancelled: nothing may be written to their memory later
  MpiWaits(const MpiWaits&) = delete;
  MpiWaits& operator=(const MpiWaits&) = delete;

  MPI_Request* add(int peer, bool receives);
  // True when all are done; false after the time-out, or what is left of it. Throws at an alarm.
  bool all();
  bool any_time(std::chrono::milliseconds at_most);  // as all(), within so long
  std::vector<int> open_peers() const;               // of the requests that are not done, each once
  void forget() {                                    // all are done
    requests_.clear();
    peers_.clear();
    receives_.clear();
    open_ = 0;
  }

 private:
  bool poll_until(Clock::time_point deadline);
  bool test();

  MpiAlarm& alarm_;
  std::chrono::milliseconds timeout_;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;
  std::vector<bool> receives_;
  std::vector<int> which_;
  std::size_t open_ = 0;  // not done yet
};

}  // namespace kiln
