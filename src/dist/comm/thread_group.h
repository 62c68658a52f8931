// Ranks as threads of one process: the laboratory and the test bench. Ranks meet at a host barrier, publish
// their pointers there, and each does its share of the work; on a GPU the share is queued on the rank's
// communication stream and ordered by events. No kernel waits for another rank, so ranks may share one GPU.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dist/comm/communicator.h"

namespace kiln {

// What a rank brings to a collective.
struct CommPost {
  const char* collective = "";
  std::string subject;  // a copy: its owner may be gone when another rank complains about it
  int64_t count = 0;
  DType dtype = DType::f32;
  std::byte* data = nullptr;  // what the others read
  Event ready;                // recorded when `data` may be read
  Event done;                 // recorded when this rank has read all the others
};

class ThreadGroup {
 public:
  explicit ThreadGroup(int world, std::chrono::milliseconds timeout = std::chrono::seconds(60));

  int world() const { return static_cast<int>(posts_.size()); }

  // Two meetings make a collective. Between them a rank may read what the others have posted. Both throw
  // Error when a rank failed, did not come in time (named), or called another collective, subject, size or
  // dtype.
  void open(int rank, const CommPost& post) { meet(rank, post, true); }
  void close(int rank, const CommPost& post) { meet(rank, post, false); }
  const CommPost& post(int rank) const { return posts_[rank]; }

  // Instead of close, after an error: ends the collective for all, and returns when no rank reads any more,
  // for the caller is about to free what it has posted. No time limit: a rank that reads waits for nobody.
  void abandon(int rank, const std::string& why);
  void abort(int rank, const std::string& why);  // wakes everybody with an error

  int failed_rank() const { return failed_rank_; }  // the first, or -1; once the ranks have ended

 private:
  void meet(int rank, const CommPost& post, bool opens);
  void fail(int rank, const std::string& message);
  std::string disagreement() const;
  std::string missing_ranks() const;

  std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<CommPost> arriving_;  // of the meeting under way
  std::vector<CommPost> posts_;     // of the last complete one; stable until every rank has come to the next
  std::vector<bool> here_;
  std::vector<bool> reading_;
  int count_ = 0;
  uint64_t round_ = 0;
  std::string failure_;
  int failed_rank_ = -1;
};

std::unique_ptr<Communicator> make_thread_communicator(RankContext& ctx, ThreadGroup& group);

using StartThread = std::function<std::thread(std::function<void()>)>;

// Runs `body` on `world` ranks, each a thread with its own context. The first error of a rank ends all of
// them and is rethrown here. `start` is std::thread's constructor unless given.
void run_thread_ranks(int world, const RankOptions& options,
                      const std::function<void(RankContext&, Communicator&)>& body,
                      std::chrono::milliseconds timeout = std::chrono::seconds(60),
                      const StartThread& start = {});

}  // namespace kiln
