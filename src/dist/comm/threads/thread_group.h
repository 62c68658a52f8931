// A group of ranks that are threads of one process. They publish their pointers at a host barrier, and
// each does its share of the work between two such barriers; on a GPU the share is queued on the
// communicator's stream and ordered by events. No kernel waits for another rank, so ranks may share one GPU.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dist/comm/communicator.h"

namespace kiln {

// What a rank brings to a collective.
struct CommPost {
  std::string title;  // "all_reduce", "all_reduce of w": the start of its error message
  std::string text;   // what all ranks must agree on. A copy: its owner may be gone when another complains
  std::byte* in = nullptr;   // what the others read
  std::byte* out = nullptr;  // what the others may write
  Event ready;               // recorded when both may be touched
  Event done;                // recorded when this rank has touched all the others'
  int color = 0, key = 0;    // of a split
};

class ThreadGroup {
 public:
  using Clock = std::chrono::steady_clock;

  // `members`: each rank's number in the whole run, which is what messages say; 0, 1, ... unless given.
  explicit ThreadGroup(int world, std::chrono::milliseconds timeout = std::chrono::seconds(60));
  ThreadGroup(const ThreadGroup& whole, std::vector<int> members);

  int world() const { return static_cast<int>(members_.size()); }

  // Two barriers make a collective. Between them a rank may touch what the others have posted. Both throw
  // Error when a rank failed, did not come in time (named), or called another collective, subject, size or
  // dtype.
  void open(int rank, const CommPost& post) { barrier(rank, post, true); }
  void close(int rank, const CommPost& post) { barrier(rank, post, false); }
  const CommPost& post(int rank) const { return posts_[static_cast<std::size_t>(rank)]; }

  // From one rank to another: offer -> take -> give_back -> collect. Between take and give_back the receiver
  // reads. Both throw as above; the two must name the same `text`.
  void offer(int from, int to, const CommPost& post);
  CommPost take(int to, int from, const CommPost& wanted);
  void give_back(int to, int from, Event done);
  Event collect(int from, int to);  // returns the receiver's `done`

  // After close, and after collect, a rank waits for events of others; then it says so. A rank that goes
  // away, and its events with it, waits for that first. No time limit: who waits for an event waits for
  // nobody.
  void leave(int rank);
  void wait_until_all_left();

  // Instead of close, after an error: ends the collective for all, and returns when no rank reads any more,
  // for the caller is about to free what it has posted. No time limit: a rank that reads waits for nobody.
  void abandon(int rank, const char* why) noexcept;
  void abort(int rank,
             const char* why) noexcept;  // wakes everybody with an error, in groups made of this one too

  // The group of a colour, made by the first of its ranks to ask between the barriers of a split.
  std::shared_ptr<ThreadGroup> part(int color, const std::vector<int>& ranks);

  // When the last rank came to the rendezvous, or to the parcel, that `rank` came to last.
  Clock::time_point arrived(int rank) const { return arrived_[static_cast<std::size_t>(rank)]; }

  int failed_rank() const { return *first_failed_; }  // of the whole run: the first, or -1

 private:
  enum class Stage { empty, offered, taken, back };
  struct Parcel {
    Stage stage = Stage::empty;
    CommPost post;
    Event done;
    Clock::time_point met;
  };

  struct Forming {
    std::shared_ptr<ThreadGroup> group;
    int to_come = 0;  // ranks that have not requested it yet
  };

  void barrier(int rank, const CommPost& post, bool opens);
  // Waits under the lock; false after the time-out. Throws when the group has failed.
  template <class Ready>
  bool wait_for(std::unique_lock<std::mutex>& lock, Ready ready);
  [[noreturn]] void throw_failure() const;
  void fail(int rank, const std::string& message, const std::string& hint) noexcept;
  void fail_of(int rank, const char* why) noexcept;
  void remember(const std::string& message, const std::string& hint) noexcept;
  void fail_parts(const std::string& message, const std::string& hint) noexcept;
  std::string disagreement() const;
  std::string name(int rank) const { return cat("rank ", members_[static_cast<std::size_t>(rank)]); }
  std::string missing_ranks() const;
  std::string last_calls() const;
  Parcel& parcel(int from, int to) {
    return parcels_[static_cast<std::size_t>(from) * members_.size() + static_cast<std::size_t>(to)];
  }

  std::vector<int> members_;
  std::chrono::milliseconds timeout_;
  std::shared_ptr<std::atomic<int>> first_failed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<CommPost> arriving_;  // of the current rendezvous
  std::vector<CommPost> posts_;     // of the last complete one; stable until every rank has come to the next
  std::vector<bool> here_;
  std::vector<bool> reading_;
  std::vector<bool> leaving_;      // from close, or from what it gets back, until it has left
  std::vector<std::string> last_;  // what each rank called last
  std::vector<Clock::time_point> arrived_;
  std::vector<Parcel> parcels_;
  int count_ = 0;
  uint64_t round_ = 0;
  bool failed_ = false;
  std::string failure_, failure_hint_;
  std::map<int, Forming> forming_;  // by colour, of the current split
  std::vector<std::weak_ptr<ThreadGroup>> parts_;
};

// Of one rank; the group outlives it unless shared.
std::unique_ptr<Transport> make_thread_transport(RankContext& ctx, std::shared_ptr<ThreadGroup> group,
                                                 int rank);

using StartThread = std::function<std::thread(std::function<void()>)>;

// Runs `body` on `world` ranks, each a thread with its own context. The first error of a rank ends all of
// them and is rethrown here. `start` is std::thread's constructor unless given. On the meta device ranks do
// not synchronize.
void run_thread_ranks(int world, const RankOptions& options,
                      const std::function<void(RankContext&, Communicator&)>& body,
                      const CommOptions& comm = {}, const StartThread& start = {});

}  // namespace kiln
