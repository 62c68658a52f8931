// A small file that the ranks of one machine and their launcher all have in memory: each rank notes there who
// it is, what it is doing and why it failed, so that the launcher can report even a rank that can no longer
// respond. One line per rank, written by that rank alone.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/error.h"

namespace kiln {

enum class RankState : int32_t { absent, started, joined, finished, failed };

struct RankStatus {
  RankState state = RankState::absent;
  int pid = 0;
  std::string host;
  std::string call;       // the collective it is in, or was in last
  bool in_call = false;   // still
  int64_t step = -1;      // of training; -1: none
  int64_t failed_at = 0;  // ns of the system's clock
  std::string error, hint;
  ErrorKind kind = ErrorKind::failed;
  bool stopped = false;  // not on the status page: the launcher has seen that it is stopped
};

class RankStatusPage {
 public:
  // The launcher's: makes the file.
  static std::unique_ptr<RankStatusPage> create(const std::string& path, int world);
  // A rank's. Null where the file is not there, or is none: a rank on another machine has no status page.
  static std::unique_ptr<RankStatusPage> open(const std::string& path, int rank);
  ~RankStatusPage();
  RankStatusPage(const RankStatusPage&) = delete;
  RankStatusPage& operator=(const RankStatusPage&) = delete;

  int world() const;
  RankStatus read(int rank) const;

  // Of this rank; from any thread.
  void start();  // pid and host
  void join();   // the rendezvous is over
  void enter(const std::string& call);
  void leave();
  void step(int64_t number);
  void fail(const Error& error);
  void finish();

 private:
  struct Page;
  RankStatusPage(Page* page, std::size_t bytes, int rank) : page_(page), bytes_(bytes), rank_(rank) {}
  template <class Write>
  void write(Write write);

  Page* page_;
  std::size_t bytes_;
  int rank_;
  std::mutex mutex_;
};

}  // namespace kiln
