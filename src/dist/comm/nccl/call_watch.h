// NCCL's calls run on the device, where one that waits for a rank that is gone waits for ever. This watches
// them from a thread of its own: the events behind them, and NCCL's own word of trouble.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "device/owned.h"
#include "dist/comm/nccl/nccl_comm.h"

namespace kiln {

class CallWatch {
 public:
  // `give_up` is called once, from the watching thread, with what is wrong.
  CallWatch(Backend& backend, NcclComm& comm, std::chrono::milliseconds timeout,
            std::function<void(const std::string&)> give_up);
  ~CallWatch();
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  void add(const std::string& title, Stream stream);  // what `stream` has been given so far
  std::string failure();                              // empty: none

 private:
  struct Watched {
    std::string title;
    Event done;
    std::chrono::steady_clock::time_point begun;
  };
  void loop();
  bool passed(Event event, std::string& lost);

  Backend& backend_;
  NcclComm& comm_;
  std::chrono::milliseconds timeout_;
  std::function<void(const std::string&)> give_up_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<OwnedEvent> events_;
  std::vector<Event> spare_;
  std::deque<Watched> calls_;
  std::string failure_;
  bool ending_ = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace kiln
