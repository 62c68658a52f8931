// The calls of one communicator and the one thread that runs them in order, apart from the rank's own. On the
// CPU that is what lets a collective run while the rank computes; on CUDA the thread only waits for the other
// ranks' hosts and queues work on the communicator's stream, so that the rank's thread need not.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "device/allocator.h"
#include "device/owned.h"
#include "dist/comm/comm_observer.h"
#include "dist/comm/comm_options.h"
#include "dist/comm/flight_record.h"
#include "dist/comm/transport.h"

namespace kiln {

class Communicator;

struct PendingCall {
  CommCall call;
  std::function<void()> work;  // instead of the transport's run(): a split
  // The rank's thread only. Memory is held and not fenced: an event recorded at its release would also wait
  // for the calls queued behind this one.
  Communicator* owner = nullptr;  // null once the communicator is gone
  Buffer in, out;
  Event queued, finished;  // what the call follows, what follows the call; null where the device has none
  std::unique_ptr<TimingEvent> begin, end;  // while recording, on such a device
  bool released = false;  // memory and events given back: the compute stream follows the call

  // Written by the queue's thread before `over`, read after it.
  std::exception_ptr error;
  int64_t queued_ns = 0, started_ns = 0, ended_ns = 0;
  bool over = false;  // under the queue's mutex. On CUDA: queued, and `finished` is recorded
};

int64_t steady_ns(std::chrono::steady_clock::time_point t = std::chrono::steady_clock::now());

class CommQueue {
 public:
  // flight_path: the file to write when a call fails, or nothing.
  CommQueue(Transport& transport, Backend& backend, Stream stream, const CommOptions& options,
            std::string flight_path);
  ~CommQueue();  // what is queued is run first, or fails
  CommQueue(const CommQueue&) = delete;
  CommQueue& operator=(const CommQueue&) = delete;

  void observe(std::shared_ptr<CommObserver> observer) { observer_ = std::move(observer); }
  void push(std::shared_ptr<PendingCall> call);  // the thread starts with the first
  void wait(const PendingCall& call);            // the host waits until it is over
  bool over(const PendingCall& call);
  void stop();                  // as the destructor; nothing may be pushed after
  std::string flight_record();  // the last calls as JSON

 private:
  void loop();
  void note(const PendingCall& call) noexcept;
  void run(PendingCall& p);
  void explain(PendingCall& p);
  void carry_out(PendingCall& p);
  void pace(const PendingCall& p, std::chrono::steady_clock::time_point start);
  void sleep_until_passed(Event event);
  std::string write_flight_record();  // a sentence on where it is, or nothing

  Transport& transport_;
  Backend& backend_;
  Stream stream_;
  const CommOptions& options_;
  const std::string flight_path_;
  std::shared_ptr<CommObserver> observer_;  // set before the first call
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<PendingCall>> queue_;
  PendingCall* running_ = nullptr;
  FlightRecord flight_;  // under the mutex
  bool stopping_ = false;
  bool failed_ = false;                 // a call has failed: every later one fails too
  std::string failure_, failure_hint_;  // with its words, where there was memory for them
  std::thread thread_;
};

}  // namespace kiln
