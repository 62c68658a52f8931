#include "dist/comm/comm_queue.h"

#include "base/error.h"

namespace kiln {

int64_t steady_ns(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
}

CommQueue::CommQueue(Transport& transport, Backend& backend, Stream stream, const CommOptions& options)
    : transport_(transport), backend_(backend), stream_(stream), options_(options) {}

CommQueue::~CommQueue() { stop(); }

void CommQueue::push(std::shared_ptr<PendingCall> call) {
  if (transport_.is_local()) {
    run(*call);
    call->over = true;
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(call));
  }
  changed_.notify_all();
  if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
}

void CommQueue::wait(const PendingCall& call) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return call.over; });
}

bool CommQueue::over(const PendingCall& call) {
  const std::lock_guard lock(mutex_);
  return call.over;
}

void CommQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CommQueue::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    // Raw: the last reference, and with it the tensors, must be dropped by the rank's thread. The rank keeps
    // one until the call is over.
    PendingCall* const p = queue_.front().get();
    queue_.pop_front();
    lock.unlock();
    run(*p);
    lock.lock();
    p->over = true;
    changed_.notify_all();
  }
}

void CommQueue::run(PendingCall& p) {
  try {
    if (!failure_.empty()) throw Error(failure_, failure_hint_);
    const auto begun = std::chrono::steady_clock::now();
    if (p.queued.handle != nullptr) backend_.wait(stream_, p.queued);
    if (p.work) {
      p.work();
    } else {
      transport_.run(p.call, stream_);
    }
    p.started_ns = steady_ns(transport_.all_arrived().value_or(begun));
    if (p.finished.handle != nullptr) backend_.record(p.finished, stream_);
    p.ended_ns = steady_ns();
  } catch (const Error& e) {
    if (failure_.empty()) {
      failure_ = e.what();
      failure_hint_ = e.hint();
    }
    p.error = std::current_exception();
  } catch (const std::exception& e) {
    if (failure_.empty()) failure_ = e.what();
    p.error = std::current_exception();
  }
}

}  // namespace kiln
