#include "dist/comm/mpi/mpi_wait.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "base/error.h"

namespace kiln {

void check_mpi(int code, const char* function) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw Error(cat(function, ": ", std::string(text.data(), static_cast<std::size_t>(length))));
}

MpiAlarm::MpiAlarm(MPI_Comm world, bool shares_cores) : shares_cores_(shares_cores) {
  check_mpi(MPI_Comm_dup(world, &comm_), "MPI_Comm_dup");
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &world_);
}

void MpiAlarm::note(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (text_.empty()) text_ = text;
  raised_.store(true);
}

void MpiAlarm::raise(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!text_.empty()) return;
    text_ = cat("rank ", rank_, " failed: ", why);
    sent_ = text_.substr(0, kTextBytes);
    raised_.store(true);
  }
  sends_.resize(static_cast<std::size_t>(world_), MPI_REQUEST_NULL);
  for (int r = 0; r < world_; ++r) {
    if (r == rank_) continue;
    MPI_Request* const request = &sends_[static_cast<std::size_t>(r)];
    MPI_Isend(sent_.data(), static_cast<int>(sent_.size()), MPI_BYTE, r, 0, comm_, request);
    int done = 0;
    MPI_Test(request, &done, MPI_STATUS_IGNORE);  // eager: on its way now
  }
}

void MpiAlarm::listen() {
  if (!raised_.load()) {
    int there = 0;
    MPI_Status status;
    MPI_Message message = MPI_MESSAGE_NULL;
    // Matched and received in one: two communicators' threads may listen at once.
    check_mpi(MPI_Improbe(MPI_ANY_SOURCE, 0, comm_, &there, &message, &status), "MPI_Improbe");
    if (there == 0) return;
    std::array<char, kTextBytes> text{};
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    MPI_Mrecv(text.data(), std::min(bytes, kTextBytes), MPI_BYTE, &message, &status);
    note(std::string(text.data(), static_cast<std::size_t>(bytes)));
  }
  const std::lock_guard lock(mutex_);
  throw Error(text_);
}

MpiWaits::~MpiWaits() {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL || !receives_[i]) continue;
    MPI_Cancel(&requests_[i]);
    MPI_Request_free(&requests_[i]);
  }
}

MPI_Request* MpiWaits::add(int peer, bool receives) {
  requests_.push_back(MPI_REQUEST_NULL);
  peers_.push_back(peer);
  receives_.push_back(receives);
  ++open_;
  return &requests_.back();
}

// MPI_Testall would leave those that are done unmarked until all are.
bool MpiWaits::test() {
  int done = 0;
  which_.resize(requests_.size());
  check_mpi(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &done, which_.data(),
                         MPI_STATUSES_IGNORE),
            "MPI_Testsome");
  if (done == MPI_UNDEFINED) return true;  // none is in flight
  open_ -= static_cast<std::size_t>(done);
  return open_ == 0;
}

// A rank that spins takes a core from threads that could use it, one that gives its core away waits for the
// next turn: some milliseconds on a busy machine, more than a piece of data takes. So it spins for a moment,
// then yields, then sleeps between looks: a rank that takes that long is still computing. Where ranks share
// cores, the one it waits for may need this very core: it yields at the first look, and sleeps soon.
bool MpiWaits::poll_until(Clock::time_point deadline) {
  const auto spin = std::chrono::microseconds(alarm_.shares_cores() ? 0 : 300);
  const auto awake = std::chrono::microseconds(alarm_.shares_cores() ? 1000 : 20000);
  constexpr auto kListenEvery = std::chrono::milliseconds(2);
  if (test()) return true;
  const Clock::time_point begun = Clock::now();
  Clock::time_point listened = begun;
  for (;;) {
    for (int i = 0; i < 20; ++i) {  // the clock costs as much as a look
      if (test()) return true;
    }
    const Clock::time_point now = Clock::now();
    if (now - listened > kListenEvery) {
      alarm_.listen();
      listened = now;
    }
    if (now > deadline) return false;
    if (now - begun > awake) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    } else if (now - begun >= spin) {
      ::sched_yield();
    }
  }
}

bool MpiWaits::all() { return poll_until(Clock::now() + timeout_); }

bool MpiWaits::any_time(std::chrono::milliseconds at_most) { return poll_until(Clock::now() + at_most); }

std::vector<int> MpiWaits::open_peers() const {
  std::vector<int> open;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] != MPI_REQUEST_NULL && std::find(open.begin(), open.end(), peers_[i]) == open.end())
      open.push_back(peers_[i]);
  }
  std::sort(open.begin(), open.end());
  return open;
}

}  // namespace kiln
