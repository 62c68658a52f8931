// NCCL's calls run on the device, where a call that waits for a lost rank hangs forever. This watches
// them from its own thread: the events behind them, and NCCL's own error state.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
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

  // Around what is queued on `stream` for one call. Its time counts from when this device has come to it:
  // what is computed here before may take as long as it likes; another rank's device may be behind by the
  // time-out.
  void begin(const std::string& title, Stream stream);
  void end(Stream stream);
  std::string failure();  // empty: none

 private:
  struct Watched {
    std::string title;
    Event ready, done;
    std::optional<std::chrono::steady_clock::time_point> begun;
  };
  Event spare_event();
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
  std::optional<Watched> opening_;  // between begin() and end()
  std::deque<Watched> calls_;
  std::string failure_;
  bool ending_ = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace kiln
