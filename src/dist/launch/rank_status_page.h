// A small file that the ranks of one machine and their launcher all have in memory: each rank notes there who
// it is, what it is doing and why it failed, so that the launcher can tell even of a rank that can no longer
// speak. One line per rank, written by that rank alone.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/error.h"

namespace kiln {

enum class RankState : int32_t { absent, started, joined, finished, failed };

struct BoardLine {
  RankState state = RankState::absent;
  int pid = 0;
  std::string host;
  std::string call;       // the collective it is in, or was in last
  bool in_call = false;   // still
  int64_t step = -1;      // of training; -1: none
  int64_t failed_at = 0;  // ns of the system's clock
  std::string error, hint;
  ErrorKind kind = ErrorKind::failed;
  bool stopped = false;  // not on the board: the launcher has seen that it stands still
};

class RankBoard {
 public:
  // The launcher's: makes the file.
  static std::unique_ptr<RankBoard> create(const std::string& path, int world);
  // A rank's. Null where the file is not there, or is none: a rank on another machine has no board.
  static std::unique_ptr<RankBoard> open(const std::string& path, int rank);
  ~RankBoard();
  RankBoard(const RankBoard&) = delete;
  RankBoard& operator=(const RankBoard&) = delete;

  int world() const;
  BoardLine read(int rank) const;

  // Of this rank; from any thread.
  void start();  // pid and host
  void join();   // the others have been met
  void enter(const std::string& call);
  void leave();
  void step(int64_t number);
  void fail(const Error& error);
  void finish();

 private:
  struct Page;
  RankBoard(Page* page, std::size_t bytes, int rank) : page_(page), bytes_(bytes), rank_(rank) {}
  template <class Write>
  void write(Write write);

  Page* page_;
  std::size_t bytes_;
  int rank_;
  std::mutex mutex_;
};

}  // namespace kiln
