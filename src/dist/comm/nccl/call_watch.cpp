#include "dist/comm/nccl/call_watch.h"

#include "base/error.h"
#include "dist/comm/event_passed.h"

namespace kiln {

CallWatch::CallWatch(Backend& backend, NcclComm& comm, std::chrono::milliseconds timeout,
                     std::function<void(const std::string&)> give_up)
    : backend_(backend), comm_(comm), timeout_(timeout), give_up_(std::move(give_up)), thread_([this] {
        loop();
      }) {}

CallWatch::~CallWatch() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Event CallWatch::spare_event() {
  if (spare_.empty()) {
    events_.emplace_back(backend_);
    spare_.push_back(events_.back());
  }
  const Event event = spare_.back();
  spare_.pop_back();
  return event;
}

void CallWatch::begin(const std::string& title, Stream stream) {
  const std::lock_guard lock(mutex_);
  if (!opening_)
    opening_ = Watched{{}, spare_event(), spare_event(), {}};  // else: a call that was not queued
  opening_->title = title;
  backend_.record(opening_->ready, stream);
}

void CallWatch::end(Stream stream) {
  const std::lock_guard lock(mutex_);
  backend_.record(opening_->done, stream);
  calls_.push_back(*opening_);
  opening_.reset();
  changed_.notify_all();
}

std::string CallWatch::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

// False, with why, where the device itself has failed: nothing passes there any more.
bool CallWatch::passed(Event event, std::string& lost) {
  try {
    return event_passed(backend_, event);
  } catch (const std::exception& e) {
    lost = e.what();
    return false;
  }
}

void CallWatch::loop() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    std::string lost;
    while (!calls_.empty() && passed(calls_.front().done, lost)) {
      spare_.push_back(calls_.front().ready);
      spare_.push_back(calls_.front().done);
      calls_.pop_front();
    }
    if (!calls_.empty() && !calls_.front().begun && lost.empty() && passed(calls_.front().ready, lost))
      calls_.front().begun = std::chrono::steady_clock::now();
    if (!calls_.empty() && failure_.empty()) {
      std::string why = lost.empty() ? comm_.trouble() : lost;
      const bool late =
          calls_.front().begun && std::chrono::steady_clock::now() - *calls_.front().begun > timeout_;
      if (why.empty() && late) why = cat("the device waited ", timeout_.count(), " ms");
      if (!why.empty()) {
        failure_ = cat("[", calls_.front().title, "] NCCL: ", why);
        lock.unlock();
        comm_.abort();
        give_up_(failure_);
        lock.lock();
      }
    }
    // Often while something runs; an idle watch costs nothing.
    if (calls_.empty()) {
      changed_.wait(lock, [&] { return ending_ || !calls_.empty(); });
    } else {
      changed_.wait_for(lock, std::chrono::milliseconds(10));
    }
  }
}

}  // namespace kiln
